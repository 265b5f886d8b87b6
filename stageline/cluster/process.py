"""One server as a child process: started, restarted after a crash, never orphaned.

A child watches for the end of its standard input, which comes when this process ends for any reason, on every platform.
It is in a process session of its own, so that Ctrl-C reaches only this process.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping

import msgspec

from stageline.cluster.part_log import PartLog
from stageline.cluster.ports import is_free, steady_port
from stageline.errors import StagelineError, Unavailable, UsageError
from stageline.runtime.server import Endpoints
from stageline.wire.environment import GRPC_ENVIRONMENT

log = logging.getLogger(__name__)

_HOST = "127.0.0.1"  # where all of them listen
START_S = 60.0  # from the start to the line with the server's endpoints
_BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_STEADY_S = 30.0  # a crash after this long starts the backoff again


class Child:
    """A server process that keeps its ports when it restarts.

    `flags` may contain the HTTP port but no other port. `secrets` are environment variables, which other users of the
    host can't read. With `log` its stderr is kept there; otherwise it is this process's.
    """

    def __init__(
        self, name: str, module: str, flags: list[str], *, grpc_port: int = 0, metrics_port: int = 0,
        secrets: Mapping[str, str] | None = None, log: PartLog | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.endpoints: Endpoints | None = None
        self._module, self._flags = module, flags
        self._grpc_port, self._metrics_port = grpc_port, metrics_port
        self._http_port: str | None = None
        self._secrets = secrets or {}
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self.log = log
        self._pump: asyncio.Task[None] | None = None
        self.restarts = 0  # after crashes
        self._asked: asyncio.subprocess.Process | None = None  # the last one that was ended on request
        self._paused: asyncio.subprocess.Process | None = None
        self._released, self._listening = asyncio.Event(), asyncio.Event()
        self._released.set()

    @property
    def pid(self) -> int | None:
        """The id of the current process; None before the first start."""
        return self._process.pid if self._process else None

    @property
    def status(self) -> str:
        """running, starting, paused, exited (and held down) or restarting (after a crash)."""
        process = self._process
        if process is None:
            return "starting"
        if process.returncode is not None:
            return "restarting" if self._released.is_set() else "exited"
        if process is self._paused:
            return "paused"
        return "running" if self._listening.is_set() else "starting"

    async def start(self) -> Endpoints:
        """Starts the server and waits until it listens. Port 0 becomes one that it will find free when it restarts.

        Raises Unavailable when it ends first or is late, UsageError when it ends because of bad input.
        """
        if self.endpoints is not None:
            return await self._start()
        asked = self._grpc_port, self._metrics_port, self._http_port
        while True:
            chosen = self._choose_ports()
            try:
                return await self._start()
            except UsageError:
                if all(is_free(_HOST, port) for port in chosen):
                    raise
                self._grpc_port, self._metrics_port, self._http_port = asked  # somebody was quicker

    def _choose_ports(self) -> list[int]:
        """Sets the ports that are 0; returns those that it has set."""
        chosen = []
        if not self._grpc_port:
            chosen.append(port := steady_port(_HOST))
            self._grpc_port = port
        if not self._metrics_port:
            chosen.append(port := steady_port(_HOST))
            self._metrics_port = port
        if self._http_port is None and "--http-port=0" in self._flags:
            chosen.append(port := steady_port(_HOST))
            self._http_port = str(port)
        return [port for port in chosen if port]

    async def _start(self) -> Endpoints:
        command = [sys.executable, "-m", self._module, *self._flags, "--exit-with-parent"]
        command += ["--grpc-port", str(self._grpc_port), "--metrics-port", str(self._metrics_port)]
        if self._http_port:
            command += ["--http-port", self._http_port]
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if self.log else None,
            start_new_session=True,
            env={**GRPC_ENVIRONMENT, **os.environ, **self._secrets},
        )
        assert process.stdout is not None
        if self.log and process.stderr:
            self._pump = asyncio.create_task(self.log.pump(process.stderr))
        try:
            async with asyncio.timeout(START_S):
                line = await process.stdout.readline()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            raise Unavailable(f"{self.name} did not start within {START_S:g} s") from None
        if not line:
            code = await process.wait()
            ended = f"{self.name} ended with exit code {code} before it was ready; its own message says why"
            raise UsageError(ended) if code == UsageError.exit_code else Unavailable(ended)
        self.endpoints = endpoints = msgspec.json.decode(line, type=Endpoints)
        if self.log:
            self.log.add(line.decode().rstrip())
        self._grpc_port = int(endpoints.grpc.rpartition(":")[2])
        if endpoints.metrics:
            self._metrics_port = int(endpoints.metrics.rpartition(":")[2])
        if endpoints.http:
            self._http_port = endpoints.http.rpartition(":")[2]
        self._listening.set()
        return endpoints

    async def keep(self, crashed: Callable[[str], None], *, restart: bool) -> None:
        """Returns after `stop`, `freeze` or `kill`, or after a crash without `restart`. Reports every crash.

        A server that `hold_down` ended is no crash, and stays down until `restart`.
        """
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            process, since = self._process, loop.time()
            assert process is not None
            code = await process.wait()
            self._listening.clear()
            if self._stopping:
                return
            if process is not self._asked:
                crashed(f"{self.name} ended with {_cause(code)}")
                if not restart:
                    return
                failures = 0 if loop.time() - since > _STEADY_S else failures
                pause_s = _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
                failures += 1
                self.restarts += 1
                log.warning("restarting the server", extra={"server": self.name, "pause_s": pause_s})
                await asyncio.sleep(pause_s)
            await self._released.wait()
            if self._stopping:
                return
            try:
                await self.start()
            except (StagelineError, OSError) as error:  # of the system: no memory, processes or descriptors are left
                log.warning("the server does not start", extra={"server": self.name, "error": str(error)})

    async def stop(self, grace_s: float) -> None:
        """Sends SIGTERM, and SIGKILL after `grace_s` if the process has not ended."""
        self._stopping = True
        await self._end(grace_s)
        if self._pump:
            await self._pump

    async def hold_down(self, grace_s: float) -> None:
        """Ends the process (0: at once, as a crash would), and keeps it from being started again until `restart`."""
        self._released.clear()
        self._asked = self._process
        await self._end(grace_s)

    async def restart(self, grace_s: float) -> None:
        """Ends the process if there is one, and returns when a new one listens. Raises Unavailable."""
        await self.hold_down(grace_s)
        self._listening.clear()
        self._released.set()
        try:
            async with asyncio.timeout(START_S):
                await self._listening.wait()
        except TimeoutError:
            raise Unavailable(f"{self.name} does not listen after {START_S:g} s") from None

    def pause(self) -> None:
        """Stops the process with SIGSTOP until `resume`: it keeps its connections but does not answer."""
        self._paused = self._process
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        self._paused = None
        self._signal(signal.SIGCONT)

    async def _end(self, grace_s: float) -> None:
        """Sends SIGTERM, and SIGKILL after `grace_s` if the process has not ended. A paused one gets SIGKILL."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if grace_s <= 0 or process is self._paused:
            self._signal(signal.SIGKILL)
            await process.wait()
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # one that is stopped hears nothing else
        try:
            async with asyncio.timeout(grace_s):
                await process.wait()
        except TimeoutError:
            log.warning("killed a server that did not stop in time", extra={"server": self.name, "grace_s": grace_s})
            self._signal(signal.SIGKILL)
            await process.wait()

    def freeze(self) -> None:
        """Stops the process with SIGSTOP until `kill`."""
        self._stopping = True
        self._signal(signal.SIGSTOP)

    def crash(self) -> None:
        """Ends the process at once; `keep` starts it again."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Ends the process at once and for good."""
        self._stopping = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


def _cause(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
