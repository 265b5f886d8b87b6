"""Settings of a server: one name each, by flag, environment or file.

A field `grpc_port` is the flag `--grpc-port`, the variable `STAGELINE_GRPC_PORT` and the key `grpc_port` of the file
that `--config` (or `STAGELINE_CONFIG`) names, TOML or JSON. Flags win over the environment, that over the file.
"""

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec

from stageline.errors import BadInput, UsageError
from stageline.wire.tls import TlsFiles

PREFIX = "STAGELINE_"
_MAX_CONFIG_BYTES = 1 << 20  # a device such as /dev/zero has no end


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What stage servers and the router share."""

    grpc_host: Annotated[str, msgspec.Meta(description="Address to listen on.")] = "0.0.0.0"
    grpc_port: Annotated[int, msgspec.Meta(ge=0, le=65535, description="gRPC port; 0: any free port.")] = 50051
    metrics_port: Annotated[
        int, msgspec.Meta(ge=-1, le=65535, description="Port of /metrics; 0: any free port, -1: none.")
    ] = 9090
    published: Annotated[
        str,
        msgspec.Meta(
            description="In a container: where its ports are published, host:port,... or none. The log names it, and "
            "warns of open ports only if a host is not loopback. Empty: not in a container."
        ),
    ] = ""
    tls_cert: Annotated[
        str, msgspec.Meta(description="PEM file of this server's certificate chain; empty: no TLS.")
    ] = ""
    tls_key: Annotated[
        str, msgspec.Meta(description="PEM file of the certificate's private key; empty: in the file of --tls-cert.")
    ] = ""
    tls_ca: Annotated[
        str,
        msgspec.Meta(
            description="PEM file of the authority that signs the cluster's certificates; turns TLS to stages on, and "
            "gRPC clients must show a certificate that it signed."
        ),
    ] = ""
    metrics_tls: Annotated[
        bool, msgspec.Meta(description="Serve /metrics by HTTPS, with the certificate of --tls-cert.")
    ] = False
    stage_key: Annotated[
        str, msgspec.Meta(description="Key without which a stage opens no session; the router shows it. Empty: none.")
    ] = ""
    log_format: Annotated[Literal["text", "json"], msgspec.Meta(description="Log as key=value lines, or as JSON.")] = (
        "text"
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], msgspec.Meta(description="Lowest level that is logged.")
    ] = "info"
    drain_s: Annotated[
        float, msgspec.Meta(ge=0, description="How many seconds a run may still take after SIGTERM.")
    ] = 10.0
    exit_with_parent: Annotated[bool, msgspec.Meta(description="Stop when standard input ends.")] = False

    @property
    def tls(self) -> TlsFiles:
        """The certificate that this server shows, and the authority that it trusts."""
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)

    def reachable(self, host: str) -> list[str]:
        """The hosts by which others reach a port that listens on `host`: those on which it is published, if any are
        named. Raises UsageError.
        """
        if self.published in ("", "none"):
            return [] if self.published else [host]
        hosts = [place.rpartition(":")[0] for place in self.published.split(",")]
        if not all(hosts):
            raise UsageError(f"--published {self.published}: write it like 127.0.0.1:8000,127.0.0.1:50051, or none")
        return hosts

    @property
    def metrics_files(self) -> TlsFiles:
        """What the /metrics port shows; without files it is plain. Raises UsageError for TLS without a certificate."""
        if self.metrics_tls and not self.tls_cert:
            raise UsageError("--metrics-tls without --tls-cert: HTTPS needs a certificate")
        return TlsFiles(self.tls_cert, self.tls_key) if self.metrics_tls else TlsFiles()

    @property
    def unasked(self) -> str:
        """What would make the gRPC server authenticate clients; empty: it does."""
        return "" if self.tls.mutual else "certificates of clients (--tls-ca)"


S = TypeVar("S", bound=ServerSettings)


def read_settings(kind: type[S], argv: Sequence[str], environ: Mapping[str, str], program: str) -> S:
    """The settings of a server. Raises UsageError or BadInput; prints help and exits on --help, as argparse does."""
    flags = vars(_parser(kind, program).parse_args(argv))
    given = {name: environ[PREFIX + name.upper()] for name in _names(kind) if PREFIX + name.upper() in environ}
    config = flags.pop("config") or environ.get(PREFIX + "CONFIG")
    values: dict[str, Any] = _file(Path(config)) if config else {}
    values |= given | {name: value for name, value in flags.items() if value is not None}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _refused(str(error), values) from None


def _refused(reason: str, values: Mapping[str, Any]) -> BadInput:
    """The error of a setting that is not as it must be, with its flag, which is also its name elsewhere."""
    said, _, place = reason.partition(" - at `$.")
    name = place.rstrip("`")
    if name not in values:
        return BadInput("settings", None, reason, "--help lists them")
    return BadInput(f"--{name.replace('_', '-')}", values[name], said, "--help lists the settings")


def _names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return kind.__struct_fields__


def _parser(kind: type[msgspec.Struct], program: str) -> argparse.ArgumentParser:
    """A parser whose flags are the fields; everything stays text until it is validated with the rest."""
    parser = argparse.ArgumentParser(prog=program, description=kind.__doc__, allow_abbrev=False)
    parser.add_argument("--config", help="TOML or JSON file with any of these settings.")
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        meta = next((m for m in hints[field.name].__metadata__ if isinstance(m, msgspec.Meta)), msgspec.Meta())
        text = f"{meta.description} Default: {field.default!r}; variable: {PREFIX}{field.name.upper()}."
        flag = "--" + field.name.replace("_", "-")
        if isinstance(field.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(flag, metavar="VALUE", help=text.replace("%", "%%"))
    return parser


def _file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise BadInput(str(path), None, f"can't be read: {error.strerror}") from None
    if len(data) > _MAX_CONFIG_BYTES:
        raise BadInput(str(path), None, f"longer than {_MAX_CONFIG_BYTES:,} bytes", "give a file of settings")
    try:
        values = msgspec.json.decode(data) if path.suffix == ".json" else tomllib.loads(data.decode())
    except (ValueError, UnicodeDecodeError) as error:
        raise BadInput(str(path), None, str(error)) from None
    if not isinstance(values, dict):
        raise BadInput(str(path), None, "is not a table of settings")
    return values
