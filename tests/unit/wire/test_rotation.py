from pathlib import Path

import pytest

from stageline.errors import BadInput
from stageline.wire.rotation import Certificates
from stageline.wire.tls import TlsFiles
from tests.certificates import Authority


def put(path: str, data: bytes) -> None:
    """Write a file as another one: its stamp differs however coarse the clock of the file system is."""
    Path(path + ".new").write_bytes(data)
    Path(path + ".new").replace(path)


def test_a_certificate_without_its_key_waits_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    files, fresh = authority.files(), authority.files()
    certificates = Certificates(files)
    before = certificates.pem
    assert certificates.renew() == 0
    put(files.cert, Path(fresh.cert).read_bytes())
    assert [certificates.renew(), certificates.renew()] == [0, 0]
    assert certificates.pem == before
    assert [record.message for record in caplog.records] == [
        "new certificate files can't be used; the old ones stay in force"
    ]
    put(files.key, Path(fresh.key).read_bytes())
    assert certificates.renew() == 1
    assert certificates.pem[0] == Path(fresh.cert).read_bytes()


def test_files_that_vanish_change_nothing(tmp_path: Path) -> None:
    files = Authority(tmp_path).files()
    certificates = Certificates(files)
    Path(files.cert).unlink()
    assert certificates.renew() == 0
    assert certificates.pem[0] is not None


def test_files_that_can_not_be_used_at_the_start_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--tls-ca"):
        Certificates(TlsFiles(ca=str(tmp_path / "missing.pem")))
