"""The options of a load run."""

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from stageline.errors import BadInput
from stageline.load.driver import Turns
from stageline.load.ramp import Step
from stageline.load.schedule import Warmup
from stageline.report.slo import Slo
from stageline.wire.tls import TlsFiles

Endpoint = Literal["completions", "chat"]
PromptKind = Literal["ids", "text"]
MAX_CONNECTIONS = 65536


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`url`: http(s)://HOST[:PORT][/PREFIX] or grpc(s)://HOST:PORT, without /v1.

    Times are workload time, except `timeout_s`, which is wall time.
    """

    url: str
    endpoint: Endpoint = "completions"
    prompts: PromptKind = "ids"
    model: str = ""
    api_key: str = ""
    tls: TlsFiles = TlsFiles()
    wall: bool = False
    steps: tuple[Step, ...] = ()
    warmup: Warmup = Warmup()
    duration_ns: int | None = None
    turns: Turns = Turns()
    connections: int = 1024
    timeout_s: float = 600.0
    retries: int = 0
    ignore_eos: bool = True
    extra_body: str = ""
    slo: Slo | None = None
    directory: Path | None = None
    seed: int = 0
    command: str = ""

    @property
    def grpc_address(self) -> str:
        """grpc://HOST:PORT or grpcs://HOST:PORT of a gRPC target; empty: HTTP."""
        return self.url if self.url.startswith(("grpc://", "grpcs://")) else ""


def checked_url(text: str) -> str:
    """Returns the URL without a trailing slash or /v1. Raises BadInput."""
    way_out = "write it like http://localhost:8000 or grpc://localhost:50051"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadInput("--url", text, "not a URL", way_out) from None
    if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
        raise BadInput("--url", text, "not a URL with http://, https://, grpc:// or grpcs://", way_out)
    if parts.query or parts.fragment:
        raise BadInput("--url", text, "has a query or a fragment", way_out)
    if parts.scheme.startswith("grpc") and (port is None or parts.path.strip("/")):
        raise BadInput("--url", text, "not grpc://HOST:PORT", way_out)
    return text.rstrip("/").removesuffix("/v1").rstrip("/")
