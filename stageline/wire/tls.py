"""The PEM files by which a process identifies itself and trusts others.

`cert` and `key` are its own certificate chain and private key (one file may hold both), `ca` the authorities that it
trusts. With all three TLS is mutual: peers must present a certificate, too.
"""

import ssl
from pathlib import Path

import msgspec

from stageline.errors import BadInput, UsageError


class TlsFiles(msgspec.Struct, frozen=True):
    """Paths; empty: not given. Every method raises UsageError or BadInput for files that can't be used."""

    cert: str = ""
    key: str = ""
    ca: str = ""

    @property
    def mutual(self) -> bool:
        """Whether a gRPC server with these files requires clients to present a certificate."""
        return bool(self.cert and self.ca)

    def server_context(self) -> ssl.SSLContext | None:
        """For an HTTPS server, which never asks clients for a certificate; None: without TLS."""
        if not self.cert:
            self._refuse_lone_key()
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._read_own(context)
        return context

    def client_context(self) -> ssl.SSLContext | None:
        """For an HTTPS client; None: the usual authorities, and no client certificate."""
        if not (self.cert or self.key or self.ca):
            return None
        context = ssl.create_default_context()
        if self.ca:
            _read_authorities(context, self.ca)
        if self.cert:
            self._read_own(context)
        self._refuse_lone_key()
        return context

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Certificate chain, key and authorities, after a check; None for each that is not given."""
        self.client_context()
        chain, key, ca = (Path(p).read_bytes() if p else None for p in (self.cert, self.key or self.cert, self.ca))
        return chain, key, ca

    def _read_own(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self.cert, self.key or None, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            place, value = "--tls-cert, --tls-key", f"{self.cert}, {self.key or self.cert}"
            hint = "give the PEM files of a certificate and its key, without a password"
            raise BadInput(place, value, f"can't be used: {_reason(error)}", hint) from None

    def _refuse_lone_key(self) -> None:
        if self.key and not self.cert:
            raise UsageError("--tls-key without --tls-cert: a key needs the certificate that belongs to it")


def _read_authorities(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        hint = "give the PEM file of the authority that signed the peers' certificates"
        raise BadInput("--tls-ca", path, f"can't be used: {_reason(error)}", hint) from None


def _no_password() -> bytes:
    """An encrypted key must fail instead of prompting for its password."""
    return b"-"


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else "no PEM certificate in it"
    return error.strerror or str(error)
