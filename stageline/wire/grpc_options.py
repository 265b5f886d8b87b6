"""All gRPC options of both servers and their channels, each with its reason."""

from typing import Final

MAX_MESSAGE_BYTES: Final = 16 << 20
KEEPALIVE_MS: Final = 20_000

_SHARED: Final = (
    # Both limits must agree. By default receiving is limited to 4 MiB and sending is unlimited.
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # With the bandwidth probe a writer runs 4 MiB ahead of a stalled reader, without it 64 KiB.
    ("grpc.http2.bdp_probe", 0),
    # Detects a host that vanishes without closing its connections. Both sides must agree on the rate, or the server
    # answers too_many_pings.
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER: Final[tuple[tuple[str, int], ...]] = (
    *_SHARED,
    # On by default, two servers would silently share a port; the second one must fail.
    ("grpc.so_reuseport", 0),
    # Accept the keepalive rate of CHANNEL.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.keepalive_permit_without_calls", 1),
    # A connection that never speaks HTTP/2, or on which no call is under way, gives its descriptor back.
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 300_000),
)

CHANNEL: Final[tuple[tuple[str, int], ...]] = (
    *_SHARED,
    # gRPC honours http_proxy even for loopback.
    ("grpc.enable_http_proxy", 0),
    # A default service config may retry calls, and a frame that is sent twice is out of order.
    ("grpc.enable_retries", 0),
    # Each link has its own connection: one slow link must not hold back another.
    ("grpc.use_local_subchannel_pool", 1),
    # Reconnects back off to two minutes by default; a restarted stage must be found within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Despite its name, the time limit of one attempt to connect: a busy host needs more than the backoff.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # A pod that moves gets a new address.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
)

CONNECT_S: Final = 10.0  # deadline of opening a link or a session, connection included
CALL_S: Final = 10.0  # deadline of a unary call
HELLO_S: Final = 5.0  # how long a link waits for its session to open
