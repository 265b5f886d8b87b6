"""Flags of commands that call or start servers, with the names and variables of the servers' own settings."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.groups import SECURITY
from stageline.errors import UsageError
from stageline.wire.tls import TlsFiles


@Parameter(name="*", group=SECURITY)
@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityFlags:
    """The certificate that a process shows, and the authority that it trusts."""

    tls_ca: Annotated[
        Path | None,
        Parameter(env_var="STAGELINE_TLS_CA", help="PEM file of the certificate authority to trust; turns TLS on."),
    ] = None
    tls_cert: Annotated[
        Path | None, Parameter(env_var="STAGELINE_TLS_CERT", help="PEM file of this side's certificate chain.")
    ] = None
    tls_key: Annotated[
        Path | None, Parameter(env_var="STAGELINE_TLS_KEY", help="PEM file of the certificate's private key.")
    ] = None
    api_key: Annotated[
        str, Parameter(env_var="STAGELINE_API_KEY", show_default=False, help="API key of the server.")
    ] = ""

    def files(self) -> TlsFiles:
        """The files by their absolute paths, since servers may run in another directory."""
        return TlsFiles(*(os.fspath(p.resolve()) if p else "" for p in (self.tls_cert, self.tls_key, self.tls_ca)))

    def refuse(self, reason: str) -> None:
        """Raises UsageError for flags given; what the environment says may be for other commands."""
        flags = {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        given = [*flags.items(), ("--api-key", self.api_key)]
        found = [f for f, value in given if value and str(value) != os.environ.get(_variable(f))]
        if found:
            raise UsageError(f"{', '.join(found)}: {reason}")


def _variable(flag: str) -> str:
    return "STAGELINE_" + flag.removeprefix("--").replace("-", "_").upper()
