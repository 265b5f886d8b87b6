"""What keeps unit tests small: a process, a network address or seconds of CPU time fail the test that uses them."""

import sys
import time
from collections.abc import Generator, Iterator

import pytest

FORBIDDEN = {"os.fork", "os.posix_spawn", "os.system", "socket.bind", "socket.connect", "subprocess.Popen"}
MAX_CPU_S = 2

_used: list[str] | None = None  # audit events of the running test; None between tests


def _audit(event: str, _: tuple[object, ...]) -> None:
    if _used is not None and event in FORBIDDEN:
        _used.append(event)
        raise AssertionError(f"{event} in a unit test; the test belongs in tests/integration or tests/cluster")


sys.addaudithook(_audit)  # hooks can't be removed; this one does nothing outside unit tests


@pytest.fixture(autouse=True)
def neither_process_nor_network() -> Iterator[None]:
    """Fails the test even where its code catches the error."""
    global _used  # noqa: PLW0603 - an audit hook takes no other argument
    _used = []
    try:
        yield
        assert _used == []
    finally:
        _used = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """CPU time, because the machine may be shared."""
    started_s = time.process_time()
    result = yield
    spent_s = time.process_time() - started_s
    assert spent_s < MAX_CPU_S, f"{spent_s:.1f} s of CPU time; the test belongs in tests/integration or tests/property"
    return result
