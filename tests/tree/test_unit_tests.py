"""Unit tests mirror the tree, and can neither start a process nor reach a network."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit import conftest


def subject(test: Path, root: Path) -> Path | None:
    """What a test is about, by its path: X/test_Y.py or X/test_Y_ASPECT.py names module or package Y in X, or X."""
    words = test.stem.split("_")[1:]
    names = ["_".join(words[:n]) for n in range(len(words), 0, -1)]
    for package in (root / "stageline" / test.parent, root / test.parent):
        for name in names:
            for found in (package / f"{name}.py", package / name / "__init__.py"):
                if found.exists():
                    return found
            if name == package.name and (package / "__init__.py").exists():
                return package / "__init__.py"
    return None


def test_every_unit_test_is_at_the_path_of_its_module(root: Path) -> None:
    unit = root / "tests/unit"
    tests = [path.relative_to(unit) for path in sorted(unit.rglob("test_*.py"))]
    assert len(tests) > 50
    assert [str(test) for test in tests if subject(test, root) is None] == []


def connect() -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", 9))


def bind() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


def start() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.parametrize("use", [connect, bind, start])
def test_a_unit_test_fails_that_uses_what_it_must_not(use: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    monkeypatch.setattr(conftest, "_used", used)
    with pytest.raises(AssertionError, match="in a unit test"):
        use()
    assert len(used) == 1
