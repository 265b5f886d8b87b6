import pytest

import stageline
from stageline.errors import VersionMismatch
from stageline.wire import version
from stageline.wire.version import check_version, wire_format


def test_the_same_version_passes() -> None:
    check_version("stage 1", stageline.__version__, wire_format(), "this router")


def test_both_sides_are_named() -> None:
    with pytest.raises(VersionMismatch) as caught:
        check_version("stage 1 at b:1", "9.1", "abc", "this router")
    assert str(caught.value).startswith("stage 1 at b:1 runs Stageline 9.1 (wire format abc), this router Stageline ")
    assert wire_format() in str(caught.value)


def test_a_column_more_is_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    before = wire_format()
    monkeypatch.setattr(version, "FRAME_COLUMNS", (*version.FRAME_COLUMNS, "another"))
    assert wire_format.__wrapped__() != before
