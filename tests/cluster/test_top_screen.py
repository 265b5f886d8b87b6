"""`stageline top` on a terminal: a pseudo-terminal whose other end is read here."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stageline.cli.main import invoke as stageline
from tests.cluster.servers import until
from tests.cluster.test_metrics import watched
from tests.known import known_plan

COMMAND = [sys.executable, "-c", "from stageline.cli.main import main; main()"]
ALTERNATE, BACK, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Screen:
    """A process on a terminal, and all that it has written."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master, self.process, self.written = master, process, bytearray()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            self.written += os.read(self._master, 1 << 16)
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)

    def resize(self, columns: int) -> None:
        """The window gets another width."""
        resize(self._master, columns)
        self.process.send_signal(signal.SIGWINCH)

    @property
    def frames(self) -> list[list[str]]:
        """The complete frames so far, as lines without colours."""
        drawn = self.written.decode("utf-8", "replace").split("\x1b[H")[1:-1]
        return [[line.rstrip() for line in _ESCAPE.sub("", one).splitlines()] for one in drawn]

    async def shows(self, text: str, *, after: int = 0) -> list[str]:
        """The first frame from number `after` on that holds the text."""

        def found() -> list[str] | None:
            return next((f for f in self.frames[after:] if any(text in line for line in f)), None)

        async def there() -> bool:
            return found() is not None

        await until(there)
        frame = found()
        assert frame is not None
        return frame


def resize(terminal: int, columns: int) -> None:
    """24 rows."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@asynccontextmanager
async def top(address: str, columns: int = 120) -> AsyncIterator[Screen]:
    """`top` on a terminal; killed if it is still there at the end."""
    master, slave = pty.openpty()
    resize(slave, columns)
    environment = os.environ | {"TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "top", address, "--interval", "0.1", stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    screen = Screen(master, process)
    try:
        yield screen
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_ends_it_well_and_puts_the_terminal_back(number: signal.Signals) -> None:
    async with asyncio.timeout(60), watched(known_plan()) as servers, top(servers.address) as screen:
        await screen.shows("  idle")
        screen.process.send_signal(number)
        assert await screen.process.wait() == 0

        async def back() -> bool:
            return screen.written.rfind(BACK) > screen.written.rfind(ALTERNATE) >= 0

        await until(back)
        assert screen.written.rfind(CURSOR) > screen.written.rfind(b"\x1b[?25l") >= 0
        assert b"Traceback" not in screen.written


async def test_a_narrower_window_gets_narrower_frames() -> None:
    async with asyncio.timeout(60), watched(known_plan()) as servers, top(servers.address) as screen:
        frame = await screen.shows("in flight")
        assert max(map(len, frame)) <= 120
        screen.resize(40)
        before = len(screen.frames)
        frame = await screen.shows("in flight", after=before + 2)
        assert max(map(len, frame)) <= 40
        assert len(frame) <= 24


async def test_a_router_that_goes_is_told_and_waited_for() -> None:
    async with asyncio.timeout(60):
        async with watched(known_plan()) as servers, top(servers.address) as screen:
            await screen.shows("  idle")
            await servers.stop_router()
            frame = await screen.shows("trying again")
            assert f"router at {servers.address}" in " ".join(frame)
            screen.process.send_signal(signal.SIGINT)
            assert await screen.process.wait() == 0


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("host:99999", "port 99999 is not between 1 and 65535"),
        ("host:0", "port 0 is not"),
        ("host", "not HOST:PORT"),
        ("http://host:50051", "not HOST:PORT"),
        ("host:abc", "not HOST:PORT"),
        ("::1:50051", "not HOST:PORT"),
    ],
)
def test_an_address_that_is_none(address: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["top", address]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "localhost:50051" in error
