"""Opens gRPC channels and ports: plain, with TLS, or with mutual TLS."""

import grpc
from grpc import aio

from stageline.errors import UsageError
from stageline.wire import grpc_options
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
        chain, key, ca = self.files.pem()
        self._credentials = grpc.ssl_channel_credentials(ca, key if chain else None, chain)
        self.metadata: Metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()

    def resolved(self, address: str) -> str:
        """Resolves an address that a user wrote."""
        if address.startswith(INSECURE):
            return address.removeprefix(INSECURE)
        secure = bool(self.files.ca) and not address.startswith(SECURE)
        return SECURE + address if secure else address

    def channel(self, address: str) -> aio.Channel:
        """A new channel to a resolved address, not yet connected. Raises UsageError for another scheme."""
        target = address.removeprefix(SECURE)
        if "://" in target:
            raise UsageError(f"{address!r} is not an address: write it like HOST:50051 or grpcs://HOST:50051")
        if target == address:
            return aio.insecure_channel(target, options=grpc_options.CHANNEL)
        return aio.secure_channel(target, self._credentials, options=grpc_options.CHANNEL)


def port_credentials(files: TlsFiles) -> grpc.ServerCredentials | None:
    """A server's credentials; None: without TLS. With an authority, clients must present a certificate."""
    chain, key, ca = files.pem()
    if chain is None or key is None:
        return None
    return grpc.ssl_server_credentials([(key, chain)], ca, require_client_auth=ca is not None)
