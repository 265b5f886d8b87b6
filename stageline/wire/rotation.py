"""Certificate files that are replaced while a process runs: the next handshake uses the new ones."""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import cast

import grpc

from stageline.errors import StagelineError
from stageline.wire.tls import TlsFiles

log = logging.getLogger(__name__)
Pem = tuple[bytes | None, bytes | None, bytes | None]  # certificate chain, key, authorities
Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """What the files hold now. Files that can't be used, such as a certificate whose key is not written yet, are said
    once in the log; what was read before stays in force until they can.

    Raises UsageError or BadInput when they can't be used to begin with. gRPC asks from its own threads.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.files, self._lock = files, Lock()
        self.generation = 0  # how often other contents came
        self._stamp, self.pem = _stamp(files), files.pem()

    def renew(self) -> int:
        """Read the files again if they have changed; returns the generation."""
        with self._lock:
            stamp = _stamp(self.files)
            if stamp != self._stamp:
                self._stamp = stamp
                self._read()
            return self.generation

    def _read(self) -> None:
        try:
            pem = self.files.pem()
        except (StagelineError, OSError) as error:
            log.warning("new certificate files can't be used; the old ones stay in force", extra={"error": str(error)})
            return
        if pem != self.pem:
            self.pem, self.generation = pem, self.generation + 1
            log.info("certificate files have changed; new connections use them", extra={"cert": self.files.cert})


def port_credentials(files: TlsFiles) -> grpc.ServerCredentials | None:
    """A gRPC server's credentials; None: without TLS. With an authority, clients must present a certificate."""
    certificates, used = Certificates(files), 0
    if not files.cert:
        return None

    def configuration() -> grpc.ServerCertificateConfiguration:
        chain, key, ca = certificates.pem
        assert chain is not None
        assert key is not None
        return grpc.ssl_server_certificate_configuration([(key, chain)], ca)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        if certificates.renew() == used:
            return None
        used = certificates.generation
        return configuration()

    fetcher = cast(Callable[[], grpc.ServerCertificateConfiguration], changed)  # None, "keep it", is not in the stubs
    return grpc.dynamic_ssl_server_credentials(configuration(), fetcher, require_client_authentication=bool(files.ca))


def server_context(files: TlsFiles) -> ssl.SSLContext | None:
    """As `TlsFiles.server_context`; every handshake gets the certificate that the files hold then."""
    context = current = files.server_context()
    if context is None:
        return None
    certificates, used = Certificates(files), 0

    def choose(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        nonlocal current, used
        if certificates.renew() != used:
            used = certificates.generation
            current = files.server_context()
        if current is not None:
            connection.context = current

    context.sni_callback = choose
    return context


def _stamp(files: TlsFiles) -> Stamp:
    """Changes with the files, also when a link to their folder is moved, as for secrets of Kubernetes."""
    return tuple(_file_stamp(path) for path in (files.cert, files.key, files.ca) if path)


def _file_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
