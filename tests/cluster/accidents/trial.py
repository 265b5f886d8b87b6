"""One cluster, accident after accident; after each it must serve again by itself, and its books must be right."""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from stageline.cluster.client_run import run_at
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.testing import ListWorkload, Recorder
from stageline.wire.router_client import RunOrder
from tests.cluster.accidents.books import Page, errors_of, page_of
from tests.cluster.accidents.crowd import Crowd
from tests.cluster.accidents.kinds import CALM, DEADLINE_S, Scene, drawn
from tests.cluster.accidents.leaks import Leaks
from tests.cluster.live import live_plan, replayed_digest
from tests.cluster.plans import some_requests

DILATION = 10
SERVES_AGAIN_S = 30.0  # of a host that does much else
SETTLED_LOOKS = 100  # a tenth of a second after each other: a busy host takes its time to tell who is gone
RUN_EVERY = 4  # accidents
NOT_READY_ERROR_S = 0.7  # a session takes time to open, and so does looking
CLOCK_ERROR_S = 0.5  # wall time that a reply may be late, on a host that does much else


class Trial:
    """`begin` it, then carry out `accident` by number. Errors are texts; no text: all was right."""

    def __init__(self, servers: LocalCluster, folder: Path, seed: int, session: aiohttp.ClientSession) -> None:
        self.servers, self._folder, self._seed, self._session = servers, folder, seed, session
        self._replayed: set[Path] = set()
        self.plan = live_plan()
        self.said: Counter[str] = Counter()
        self.leaks = Leaks()

    async def accident(self, number: int) -> tuple[str, list[str]]:
        """What happened, and what was wrong afterwards."""
        draw = random.Random(f"{self._seed}/{number}")
        kinds = drawn(draw)
        names = " and ".join(kind.__name__ for kind in kinds)
        crowd = Crowd(self.servers.router_endpoints.http, draw)
        errors: list[str] = []
        before = await page_of(self.servers, self._session)
        clock = await self._moment(crowd)
        scene = Scene(self.servers, draw, self._folder, self._serves)
        if kinds[0] in CALM:
            await kinds[0](scene)
            await self._ready()
            crowd.tally.clear()  # the books of the run are closed
            before, clock = await page_of(self.servers, self._session), await self._moment(crowd)
            watch = asyncio.create_task(self._unready_s())
            await crowd.start()
        else:
            await crowd.start()
            await asyncio.sleep(draw.uniform(0, 0.5))
            watch = asyncio.create_task(self._unready_s())
            await asyncio.gather(*(kind(scene) for kind in kinds))
        await asyncio.sleep(0.3)  # a signal takes effect
        try:
            async with asyncio.timeout(SERVES_AGAIN_S):
                await self._ready()
        except TimeoutError:
            errors.append(f"it does not serve again within {SERVES_AGAIN_S:g} s: {await self._why()}")
        unready_s = await self._stop(watch)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                await crowd.stop()
        errors += crowd.wrong
        if errors:
            return names, errors
        await self._quiet()
        errors += await self._books(before, crowd)
        now = await page_of(self.servers, self._session)
        if now.pid == before.pid:
            errors += self._lost_time(before, now, unready_s)
            if now.counts["broken"] == before.counts["broken"] and "run" not in names:
                errors += await self._clock_errors(clock, crowd, now.counts["slip"] - before.counts["slip"])
        if number % RUN_EVERY == RUN_EVERY - 1:
            errors += await self._virtual_run()
        errors += self._recordings()
        errors += self.leaks.look({c.pid: c.name for c in [self.servers.router, *self.servers.stages] if c and c.pid})
        return f"{names} (not ready for {unready_s:.1f} s)", errors

    async def _books(self, before: Page, crowd: Crowd) -> list[str]:
        """A cancellation takes effect when nothing of its request is in flight: look a few times."""
        errors: list[str] = []
        for _ in range(SETTLED_LOOKS):
            errors = errors_of(before, await page_of(self.servers, self._session), crowd.tally)
            if not errors:
                break
            await asyncio.sleep(0.1)
        return errors

    @staticmethod
    def _lost_time(before: Page, now: Page, unready_s: float) -> list[str]:
        """Every second in which nothing was served is slip or fault."""
        slip_s = now.counts["slip"] - before.counts["slip"]
        fault_s = now.fault_s(before)
        if unready_s > slip_s + fault_s + NOT_READY_ERROR_S:
            return [f"not ready for {unready_s:.2f} s, but slip {slip_s:.2f} s + fault {fault_s:.2f} s"]
        return []

    async def _moment(self, crowd: Crowd) -> tuple[float, float]:
        """A request ends: wall time and emulated time of its end."""
        usage = await crowd.ask(5)
        return time.monotonic(), usage["arrival_s"] + usage["e2e_s"]

    async def _clock_errors(self, before: tuple[float, float], crowd: Crowd, slip_s: float) -> list[str]:
        now = await self._moment(crowd)
        page = await page_of(self.servers, self._session)
        wall_s, emulated_s = now[0] - before[0], now[1] - before[1]
        error_s = wall_s - emulated_s * DILATION - slip_s
        if abs(error_s) > CLOCK_ERROR_S and page.counts["broken"]:
            return []
        if abs(error_s) > CLOCK_ERROR_S:
            return [
                f"wall {wall_s:.2f} s = {emulated_s * DILATION:.2f} s of the clock + slip {slip_s:.2f} + {error_s:.2f}"
            ]
        return []

    async def _virtual_run(self) -> list[str]:
        """An idle live session gives way, its recording gets its digest, and the run is right."""
        requests, seen, wanted_seen = some_requests(30), Recorder(), Recorder()
        order = RunOrder(plan_digest=self.plan.digest(), scheduling=Scheduling(), seed=3)
        totals, _ = await run_at(self.servers.address, order, ListWorkload(requests), seen, wait_s=30)
        wanted = inprocess.run(self.plan, Scheduling(), ListWorkload(requests), seed=3, observer=wanted_seen)
        await self._ready()
        if totals != wanted or sorted(seen.tokens) != sorted(wanted_seen.tokens):
            return ["a run in emulated time gives another result"]
        return []

    def _recordings(self) -> list[str]:
        """All that are over: the same digest, or the last line says where it ends."""
        paths = sorted(self._folder.glob("session.jsonl*"), key=lambda path: path.stat().st_mtime)
        errors = []
        for path in paths[:-1]:
            if path in self._replayed:
                continue
            self._replayed.add(path)
            digest, ended = ending_of(path)
            self.said["replayed" if digest else "ends with a reason" if ended else "ends without a word"] += 1
            replayed = replayed_digest(self.plan, path)
            if digest and digest != replayed:
                errors.append(f"{path.name}: digest {digest}, replayed {replayed}")
        return errors

    async def _quiet(self) -> None:
        async with asyncio.timeout(20):
            while (await page_of(self.servers, self._session)).router.total("stageline_live_requests"):
                await asyncio.sleep(0.05)

    async def _ready(self) -> None:
        while await self._status() != 200:
            await asyncio.sleep(0.05)

    async def _status(self) -> int:
        try:
            url = f"http://{self.servers.router_endpoints.http}/ready"
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(2)) as reply:
                return reply.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0

    async def _serves(self) -> bool:
        return await self._status() == 200

    async def _why(self) -> str:
        with contextlib.suppress(Exception):
            async with self._session.get(f"http://{self.servers.router_endpoints.http}/ready") as reply:
                return await reply.text()
        return "nobody answers"

    async def _unready_s(self) -> float:
        """Until cancelled: how long /ready was not 200."""
        total_s, since_s = 0.0, time.monotonic()
        try:
            while True:
                bad = await self._status() != 200
                now_s = time.monotonic()
                total_s, since_s = total_s + (now_s - since_s) * bad, now_s
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            return total_s

    @staticmethod
    async def _stop(task: "asyncio.Task[float]") -> float:
        task.cancel()
        return await task


def ending_of(path: Path) -> tuple[str, str]:
    """The digest of a recording, and why it has none."""
    last = path.read_text().splitlines()[-1]
    with contextlib.suppress(ValueError):
        line = json.loads(last)
        return line.get("digest", ""), line.get("ended", "")
    return "", ""


@contextlib.asynccontextmanager
async def trial(folder: Path, seed: int, session_retries: int = 0) -> AsyncIterator[Trial]:
    """A fresh cluster that serves."""
    plan, path = live_plan(), folder / "plan.json"
    path.write_bytes(plan.canonical())
    flags = (
        "--http-port=0",
        f"--dilation={DILATION}",
        f"--stage-deadline={DEADLINE_S:g}s",
        f"--record={folder / 'session.jsonl'}",
        f"--session-retries={session_retries}",
    )
    async with LocalCluster(plan, path, LocalOptions(router_flags=flags, log_level="error"), lambda _: None) as servers:
        await servers.healthy()
        connector = aiohttp.TCPConnector(force_close=True)  # not one of its own may count as a leak
        async with aiohttp.ClientSession(connector=connector) as session:
            found = Trial(servers, folder, seed, session)
            await found._ready()
            yield found
