"""gRPC ignores an option that it does not know, so a misspelt one goes unnoticed until a long run breaks."""

from pathlib import Path

from grpc._cython import cygrpc

from stageline.wire import grpc_options


def test_every_option_is_one_that_the_core_reads() -> None:
    core = Path(cygrpc.__file__).read_bytes()
    names = {name for name, _ in (*grpc_options.SERVER, *grpc_options.CHANNEL)}
    assert {name for name in names if name.encode() not in core} == set()


def test_servers_accept_the_pings_of_our_own_channels() -> None:
    server, channel = dict(grpc_options.SERVER), dict(grpc_options.CHANNEL)
    assert server["grpc.http2.min_ping_interval_without_data_ms"] < channel["grpc.keepalive_time_ms"]
