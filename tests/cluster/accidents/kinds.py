"""The accidents. Each breaks something, mends what only a person can (a stopped process, a full disk), and returns.

What else it takes to serve again is the cluster's own business.
"""

import asyncio
import contextlib
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from stageline.cluster.local import LocalCluster
from stageline.cluster.process import Child
from stageline.v1 import router_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.wire.channels import Dialer
from tests.cluster.servers import run_start

DEADLINE_S = 2.0
HOLD_PORT_S = 3.0
_GARBAGE_CONNECTIONS = 4


class Scene(msgspec.Struct, frozen=True):
    """Where an accident happens."""

    servers: LocalCluster
    draw: random.Random
    folder: Path
    serves: Callable[[], Awaitable[bool]]

    @property
    def router(self) -> Child:
        """The router's process."""
        assert self.servers.router
        return self.servers.router

    async def served(self) -> None:
        """Return when live clients would be served. Raises TimeoutError."""
        async with asyncio.timeout(10 * DEADLINE_S):
            while not await self.serves():
                await asyncio.sleep(0.05)

    def stage(self) -> Child:
        """One of them."""
        return self.draw.choice(self.servers.stages)

    def pause_s(self) -> float:
        """0.1 to 3 times the deadline, short ones more often."""
        return DEADLINE_S * 0.1 * 30 ** self.draw.random()


def _kill(child: Child, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid or 0, number)


async def _stopped(child: Child, pause_s: float) -> None:
    pid = child.pid
    with contextlib.suppress(ProcessLookupError):  # it may be dead already, or die meanwhile
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(pause_s)
        finally:
            os.kill(pid, signal.SIGCONT)


async def kill_a_stage(scene: Scene) -> None:
    """kill -9."""
    _kill(scene.stage())


async def stop_a_stage(scene: Scene) -> None:
    """It neither answers nor closes its connections, for a while."""
    await _stopped(scene.stage(), scene.pause_s())


async def kill_the_router(scene: Scene) -> None:
    """kill -9."""
    _kill(scene.router)


async def restart_the_router(scene: Scene) -> None:
    """SIGTERM, as an orchestrator does it: it drains, ends, and is started again."""
    _kill(scene.router, signal.SIGTERM)


async def stop_the_router(scene: Scene) -> None:
    """For a while it does nothing at all."""
    await _stopped(scene.router, scene.pause_s())


async def take_a_port(scene: Scene) -> None:
    """A server dies, and somebody else has its port for a while."""
    child = scene.draw.choice([scene.router, *scene.servers.stages])
    host, _, port = child.endpoints.grpc.rpartition(":")
    _kill(child)
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        async with asyncio.timeout(5):
            while True:
                with contextlib.suppress(OSError):
                    holder.bind((host, int(port)))
                    holder.listen()
                    break
                await asyncio.sleep(0.005)
        await asyncio.sleep(HOLD_PORT_S)
    finally:
        holder.close()


async def garbage_on_every_port(scene: Scene) -> None:
    """Bytes that mean nothing, half requests, and connections that say nothing."""
    ends = [scene.servers.router_endpoints, *(child.endpoints for child in scene.servers.stages)]
    addresses = [address for end in ends for address in (end.grpc, end.metrics, end.http) if address]
    texts = [
        scene.draw.randbytes(2000), b"GET /v1/models HTT", b"",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9999\r\n\r\n{",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + scene.draw.randbytes(300), b"\x16\x03\x01\x02\x00\x01",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzz",
    ]  # fmt: skip
    writers = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        for _ in range(_GARBAGE_CONNECTIONS):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(scene.draw.choice(texts))
                writers.append(writer)
    await asyncio.sleep(0.3)
    for writer in writers:
        writer.close()


async def fill_the_disk(scene: Scene) -> None:
    """No file of the router may grow any more; the recording of the next session can be written again."""
    size = max((path.stat().st_size for path in scene.folder.glob("session.jsonl*")), default=0)
    pid = scene.router.pid
    with contextlib.suppress(ProcessLookupError):  # it may be dead already, or die meanwhile
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 50, hard))
        await asyncio.sleep(0.5)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


async def begin_a_run_and_say_no_more(scene: Scene) -> None:
    """A client of Run that sends its start and then nothing, while live clients come."""
    async with Dialer().channel(scene.servers.address) as channel:
        call = RouterStub(channel).Run()
        with contextlib.suppress(Exception):
            await call.write(router_pb2.RunRequest(start=run_start()))
            await asyncio.sleep(0.2)
            await scene.served()
        call.cancel()


async def suspend_a_client_of_a_run(scene: Scene) -> None:
    """`stageline run --cluster`, stopped once it has begun: Ctrl-Z. Live clients are served while it is stopped."""
    command = [sys.executable, "-c", "from stageline.cli.main import main; main()", "run"]
    command += [str(scene.folder / "plan.json"), "--cluster", scene.servers.address]
    command += ["--workload", "poisson:rate=1000,requests=20000,input=20,output=20"]
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=null)
    try:
        async with asyncio.timeout(20):
            while await scene.serves():
                await asyncio.sleep(0.02)
        await asyncio.sleep(scene.draw.uniform(0, 0.5))
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
        await scene.served()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


Accident = Callable[[Scene], Awaitable[None]]
ALONE: tuple[Accident, ...] = (
    kill_a_stage, stop_a_stage, stop_a_stage, kill_the_router, restart_the_router, stop_the_router, take_a_port,
    garbage_on_every_port, fill_the_disk,
)  # fmt: skip
CALM: tuple[Accident, ...] = (begin_a_run_and_say_no_more, suspend_a_client_of_a_run)  # live clients come later
TOGETHER: tuple[Accident, ...] = (
    kill_a_stage, stop_a_stage, kill_the_router, stop_the_router, garbage_on_every_port, fill_the_disk,
)  # fmt: skip


def drawn(draw: random.Random) -> list[Accident]:
    """One accident, or in a quarter of the cases two at once."""
    if draw.random() < 0.25:
        return draw.sample(TOGETHER, 2)
    return [draw.choice(ALONE + CALM)]
