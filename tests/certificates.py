"""Certificates for tests: an authority, and what it signs."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from stageline.wire.tls import TlsFiles


class Authority:
    """Signs certificates for loopback and puts all files into one folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._prefix, self._made = folder, name, 0
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.ca = self._write(f"{name}.pem", own.public_bytes(Encoding.PEM))

    def files(self, name: str = "member", *, host: str = "127.0.0.1") -> TlsFiles:
        """A new certificate for a host, its key, and this authority."""
        self._made += 1
        file = f"{self._prefix}-{self._made}"
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        chain = self._sign(subject, key, names).public_bytes(Encoding.PEM)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return TlsFiles(self._write(f"{file}.pem", chain), self._write(f"{file}.key", private), self.ca)

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.write_bytes(data)
        return str(path)
