"""Opens gRPC channels: plain, with TLS, or with mutual TLS."""

import grpc
from grpc import aio

from stageline.errors import UsageError
from stageline.wire import grpc_options
from stageline.wire.rotation import Certificates
from stageline.wire.tls import TlsFiles

INSECURE, SECURE = "grpc://", "grpcs://"
Metadata = tuple[tuple[str, str], ...]


class Dialer:
    """Opens channels. Raises UsageError or BadInput for files that can't be used.

    Of the addresses that users write, `grpcs://HOST:PORT` is with TLS, `grpc://HOST:PORT` without, and HOST:PORT with
    TLS if an authority is given. Resolved addresses, which processes send each other, have `grpcs://` or no scheme;
    no scheme means without TLS.
    """

    def __init__(self, files: TlsFiles | None = None, *, api_key: str = "") -> None:
        self.files = files or TlsFiles()
        self._certificates, self._used = Certificates(self.files), 0
        self._credentials = _credentials(self._certificates)
        self.metadata: Metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()

    def resolved(self, address: str) -> str:
        """Resolves an address that a user wrote."""
        if address.startswith(INSECURE):
            return address.removeprefix(INSECURE)
        secure = bool(self.files.ca) and not address.startswith(SECURE)
        return SECURE + address if secure else address

    @property
    def generation(self) -> int:
        """Another number once the certificate files have changed: only new channels use the new ones."""
        return self._certificates.renew()

    def channel(self, address: str) -> aio.Channel:
        """A new channel to a resolved address, not yet connected. Raises UsageError for another scheme."""
        target = address.removeprefix(SECURE)
        if "://" in target:
            raise UsageError(f"{address!r} is not an address: write it like HOST:50051 or grpcs://HOST:50051")
        if target == address:
            return aio.insecure_channel(target, options=grpc_options.CHANNEL)
        if self.generation != self._used:
            self._used, self._credentials = self.generation, _credentials(self._certificates)
        return aio.secure_channel(target, self._credentials, options=grpc_options.CHANNEL)


def _credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    chain, key, ca = certificates.pem
    return grpc.ssl_channel_credentials(ca, key if chain else None, chain)
