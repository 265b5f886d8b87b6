"""The flags of `stageline up` that concern its servers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from stageline.cli.groups import SERVERS
from stageline.cli.numbers import WHOLE


@Parameter(name="*", group=SERVERS)
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """Settings of the router and the stage servers."""

    grpc_port: Annotated[int, WHOLE, Parameter(help="The router's gRPC port; 0: any free port.")] = 50051
    metrics_port: Annotated[int, WHOLE, Parameter(help="The router's /metrics port; 0: any free port, -1: none.")] = (
        9090
    )
    metrics_tls: Annotated[
        bool,
        Parameter(
            negative="",
            env_var="STAGELINE_METRICS_TLS",
            help="Serve /metrics of all servers by HTTPS, with the certificate of --tls-cert.",
        ),
    ] = False
    payload: Annotated[
        Literal["size", "capped", "full"],
        Parameter(help="How many bytes of activations, and of KV that is handed over, are actually sent."),
    ] = "capped"
    window: Annotated[
        int, WHOLE, Parameter(help="Flow-control window: frames in flight per replica; 0: two per core.")
    ] = 0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Parameter(help="Lowest level that servers log.")
    ] = "warning"
    log_format: Annotated[Literal["text", "json"], Parameter(help="Format of the servers' logs.")] = "text"
    fail_fast: Annotated[bool, Parameter(negative="", help="Stop all servers as soon as one ends.")] = False
