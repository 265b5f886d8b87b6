"""How much of our own code one live token runs: function calls, and how often the next one is in another file.

    python -m bench.calls [--tokens 200] [--top 20]

A router and three stages in one process on loopback, dilation 1, asked over HTTP by the client of `bench.live`: by one
user alone, whose every token is a microbatch of its own, and by 8 users, who share microbatches. Stages take 5 ms, so
that the profiler makes nobody late.

`calls` counts what `sys.setprofile` reports as a call in a file of stageline, router or stage_server: functions,
methods, properties, comprehensions, and every resumption of a coroutine or generator. Generated code (stageline/v1),
libraries, C functions and this folder are left out. `files` counts the calls whose file is not that of the counted call
before. Both are per token that a client got, over whole requests: accepting one adds about a call per token. Everything
runs in one thread, for gRPC's own threads run no Python.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType

import msgspec
import uvloop

import router
import stage_server
import stageline
from bench.live.client import closed_loop, ready, request_of
from router.server import build
from router.settings import RouterSettings
from stage_server.server import build as build_stage
from stage_server.settings import StageSettings
from stageline.cost.entries import Affine
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit

STAGES = 3
SERVICE_NS = 5_000_000
USERS = (1, 8)
_OURS = tuple(f"{Path(package.__file__ or '').parent}/" for package in (router, stage_server, stageline))
_GENERATED = f"{_OURS[-1]}v1/"


class Count:
    """What has been called. `start` and `stop` set the profiler of this thread."""

    def __init__(self) -> None:
        self.calls = self.files = 0
        self.by_code: Counter[CodeType] = Counter()
        self._last = ""
        self._counted: dict[CodeType, bool] = {}

    def start(self) -> None:
        """Counts from now on."""
        sys.setprofile(self._event)

    def stop(self) -> None:
        """Counts no more."""
        sys.setprofile(None)

    def top(self, size: int) -> list[tuple[str, int]]:
        """The most called functions."""
        folder = Path(_OURS[0]).parent
        return [
            (f"{Path(code.co_filename).relative_to(folder)}:{code.co_firstlineno} {code.co_qualname}", calls)
            for code, calls in self.by_code.most_common(size)
        ]

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        counted = self._counted.get(code)
        if counted is None:
            name = code.co_filename
            counted = self._counted[code] = name.startswith(_OURS) and not name.startswith(_GENERATED)
        if counted:
            self.calls += 1
            self.by_code[code] += 1
            if code.co_filename != self._last:
                self.files += 1
                self._last = code.co_filename


def pipeline() -> Plan:
    """Equal stages, KV for everybody."""
    stages = range(STAGES)
    return Plan(
        model="bench",
        device="bench",
        stages=tuple(
            StagePlan(name=f"stage-{s}", layers=(s,), kv_budget_bytes=1 << 40, kv_block_bytes=64) for s in stages
        ),
        visits=tuple(Visit(stage=s, layers=(s,), cost=0, min_service_ns=SERVICE_NS) for s in stages),
        links=tuple(
            LinkPlan(latency_ns=30_000, bytes_per_s=50 * 10**9, bytes_per_token=8192) for _ in range(STAGES + 1)
        ),
        costs=(Affine(base_ns=SERVICE_NS, token_ns=200),),
        defaults=Defaults(microbatch=64, credits=STAGES, batched_tokens=8192),
    )


@asynccontextmanager
async def serving(plan: Plan) -> AsyncIterator[str]:
    """A live cluster in this process; the address of its HTTP API."""
    common = {"grpc_host": "127.0.0.1", "grpc_port": 0, "metrics_port": -1, "drain_s": 5.0}
    async with AsyncExitStack() as stack:
        addresses = []
        for _ in plan.stages:
            stage = build_stage(msgspec.convert(common, StageSettings))
            stack.push_async_callback(stage.stop, 0)
            addresses.append((await stage.start()).grpc)
            await stage.set_serving(True)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()), "plan.json")
        path.write_bytes(plan.canonical())  # noqa: ASYNC240 - before anything is measured
        own = {"plan": str(path), "stages": ",".join(addresses), "http_port": 0}
        server = build(msgspec.convert(common | own, RouterSettings))
        stack.push_async_callback(server.stop, 5)
        address = (await server.start()).http
        await ready(address)
        yield address


async def measure(tokens: int, top: int) -> None:
    """Prints a row per number of users."""
    async with serving(pipeline()) as address:
        print(f"{'users':>5} {'tokens':>7} {'calls/token':>12} {'files/token':>12}")
        for users in USERS:
            request = request_of(64, tokens)
            await closed_loop(address, users, users, request)
            count = Count()
            count.start()
            replies = await closed_loop(address, users, users, request)
            count.stop()
            got = sum(len(reply.times_s) for reply in replies)
            print(f"{users:>5} {got:>7} {count.calls / got:>12.1f} {count.files / got:>12.1f}", flush=True)
            for name, calls in count.top(top):
                print(f"      {calls / got:>8.2f}  {name}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--tokens", type=int, default=200, help="of each reply")
    parser.add_argument("--top", type=int, default=0, help="also print that many of the most called functions")
    flags = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(flags.tokens, flags.top))


if __name__ == "__main__":
    main()
