"""What the servers' metrics say, and whether it agrees with itself and with the clients."""

from collections import Counter

import aiohttp

from stageline.cluster.local import LocalCluster
from stageline.runtime import metric_names as names
from stageline.runtime import vllm_names as vllm
from stageline.runtime.samples import Samples, parse

_COUNTED = ("in", "refused", "finished", "failed", "stop", "length", "abort", "error", "slip", "broken")


class Page:
    """The router's figures at one moment, and the wall time that each stage has counted as `fault`."""

    def __init__(self, pid: int, router: Samples, stages: dict[int, Samples | None]) -> None:
        self.pid, self.router, self._stages = pid, router, stages
        counts = {
            "in": router.total(names.REQUESTS.name),
            "refused": router.total(names.LIVE_REFUSED.name),
            "finished": router.total(names.FINISHED.name),
            "failed": router.total(names.FAILED.name),
            "slip": router.total(names.SLIP.name),
            "broken": router.total(names.LIVE_FAILURES.name),
        }
        reasons = ("stop", "length", "abort", "error")
        counts |= {why: router.total(vllm.SUCCESS.name, finished_reason=why) for why in reasons}
        self.counts = Counter(counts)

    @property
    def kv_bytes(self) -> list[float]:
        """What each stage's ledger holds; those that do not answer are left out."""
        return [s.total(names.STAGE_KV_USED.name) for s in self._stages.values() if s]

    def fault_s(self, before: "Page") -> float:
        """The most that a stage has counted since then, of those that live on."""
        pairs = ((s, before._stages.get(pid)) for pid, s in self._stages.items())
        return max((_fault_s(now) - _fault_s(then) for now, then in pairs if now and then), default=0.0)


def _fault_s(stage: Samples) -> float:
    return stage.total(names.STAGE_IDLE.name, cause="fault")


async def page_of(servers: LocalCluster, session: aiohttp.ClientSession) -> Page:
    """Reads all of /metrics."""

    async def read(endpoint: str) -> Samples | None:
        try:
            async with session.get(f"http://{endpoint}/metrics", timeout=aiohttp.ClientTimeout(5)) as reply:
                return parse(await reply.read())
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    router = await read(servers.router_endpoints.metrics)
    assert router is not None, "the router shows no metrics"
    stages = {child.pid: await read(child.endpoints.metrics) for child in servers.stages}
    return Page(servers.router.pid, router, stages)


def errors_of(before: Page, now: Page, tally: Counter[str], *, pipeline_is_idle: bool = True) -> list[str]:
    """What does not add up. `tally` is what clients have counted between the two pages."""
    found = []
    counts = now.counts

    def equal(name: str, left: float, right: float) -> None:
        if left != right:
            found.append(f"{name}: {left:g} != {right:g}")

    equal("requests in = finished + failed", counts["in"], counts["finished"] + counts["failed"])
    equal("finished = stop + length", counts["finished"], counts["stop"] + counts["length"])
    equal("failed = abort + error", counts["failed"], counts["abort"] + counts["error"])
    if pipeline_is_idle:
        equal("running", now.router.total(names.RUNNING.name) + now.router.total(names.WAITING.name), 0)
        equal("KV at the router", now.router.total(vllm.KV_USAGE.name), 0)
        equal(f"KV of the stages {now.kv_bytes}", sum(now.kv_bytes), 0)
    if now.pid != before.pid:
        return found
    passed = Counter({name: counts[name] - before.counts[name] for name in _COUNTED})
    loose = tally["unsure"] + tally["cut"]  # may have been taken, and may have ended in any way

    def within(name: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            found.append(f"{name}: {value:g}, clients say {least:g} to {most:g}: {dict(tally)}")

    taken = tally["finished"] + tally["failed"] + tally["left"]
    within("requests in", passed["in"], taken, taken + loose)
    within("finished", passed["finished"], tally["finished"], tally["finished"] + tally["left"] + loose)
    within("failed in the middle", passed["error"], tally["failed"], tally["failed"] + tally["left"] + loose)
    within("cancelled", passed["abort"], 0, tally["left"] + loose)
    within("refused", passed["refused"], tally["refused"], tally["refused"] + loose)
    return found
