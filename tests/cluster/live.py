"""A live cluster in one process: real servers, real gRPC and HTTP on loopback, wall time."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec
from openai import AsyncOpenAI

from router.server import build
from router.settings import RouterSettings
from stage_server.server import build as build_stage
from stage_server.settings import StageSettings
from stageline.engine import inprocess
from stageline.engine.fleet import Fleet, HandOver, Order, Pool
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.runtime.deployment import Deployment, Document
from stageline.runtime.server import Server
from stageline.testing import DigestObserver, uniform_plan
from stageline.workload import open_workload
from stageline.workload.recording import RecordedWorkload
from tests.cluster.servers import SETTINGS, until

MODEL = "llama-3.1-8b"


def live_plan(stages: int = 3, *, route: tuple[int, ...] = (), replicas: int = 1, base_ns: int = 400_000) -> Plan:
    """Stages of some tenths of a millisecond: a token takes a few milliseconds of wall time at dilation 1."""
    return uniform_plan(
        stages, route=route, service_ns=base_ns, token_ns=500, latency_ns=20_000, bytes_per_s=10**10,
        bytes_per_token=64, kv_budget_bytes=1 << 14, kv_block_bytes=64, microbatch=16, credits=2,
        max_context_tokens=8192, replicas=replicas, model=MODEL,
    )  # fmt: skip


def handing_over(order: Order, streamed: bool = False) -> Fleet:
    """A block of 16 tokens takes two tenths of a millisecond from one pool to the other."""
    return Fleet(
        pools=(
            Pool(name="prefill", plan=live_plan(2), role="prefill", scheduling=Scheduling(prefix_cache=True)),
            Pool(name="decode", plan=live_plan(2, route=(0, 1, 0), replicas=2), role="decode"),
        ),
        hand_over=HandOver(bytes_per_s=640_000, latency_ns=100_000, order=order, streamed=streamed),
        balance="least-loaded",
    )


class Live:
    """The servers and their addresses."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.stages: list[Server] = []
        self.stage_ports: list[str] = []
        self.router: Server | None = None
        self.http = self.grpc = ""
        self.trust = self.key = ""
        self.scheme = "http"

    @property
    def url(self) -> str:
        """Of the HTTP door."""
        return f"{self.scheme}://{self.http}"

    def client(self, **options: object) -> AsyncOpenAI:
        """The official client, without retries of its own."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, **options)

    async def start_stage(self, port: int = 0) -> str:
        """One stage server; its address."""
        common = msgspec.structs.asdict(SETTINGS) | {"grpc_port": port, "tls_ca": self.trust, "stage_key": self.key}
        server = build_stage(StageSettings(**common))
        endpoints = await server.start()
        await server.set_serving(True)
        self.stages.append(server)
        self.stage_ports.append(endpoints.grpc)
        return endpoints.grpc

    def stage_port(self, index: int) -> int:
        """Where a stage listens, so that it can come back there."""
        return int(self.stage_ports[index].rpartition(":")[2])

    async def ready(self, wanted: bool = True) -> None:
        """Waits for /ready."""
        async with aiohttp.ClientSession() as session:

            async def look() -> bool:
                async with session.get(f"{self.url}/ready", ssl=False) as reply:
                    return (reply.status == 200) is wanted

            await until(look)

    async def metric(self, name: str) -> float:
        """One sample of /metrics."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as reply:
            lines = (await reply.text()).splitlines()
        return next(float(line.split()[-1]) for line in lines if line.split()[0] == name)

    def idle_s(self, stage: int, cause: str) -> float:
        """What a stage tells Prometheus."""
        labels = {"stage": str(stage), "replica": "0", "cause": cause}
        return self.stages[stage].registry.get_sample_value("stageline_stage_idle_seconds_total", labels) or 0.0

    async def quiet(self) -> None:
        """Waits until no request is left."""

        async def look() -> bool:
            return await self.metric("stageline_live_requests") == 0

        await until(look)

    async def emptied(self) -> None:
        """Waits until no request is left, ends the session, and looks into the ledgers of router and stages."""
        await self.quiet()
        supervisor = self.router._service._supervisor
        machines = [server._service._session.machine for server in self.stages]
        router = supervisor.session.router
        await supervisor.pause()
        supervisor.resume()
        assert supervisor.last_digest or not router.arrived
        assert (router.arrived, len(router.sequences)) == (router.finished + router.failed, 0)
        mirrors = ((replica.mirror, s) for replica in router.replicas for s in range(len(replica.route.plan.stages)))
        assert [mirror.used_bytes(s) for mirror, s in mirrors] == [0] * len(machines)
        assert [(m.done, m.stage.ledger.used_bytes) for m in machines] == [(True, 0)] * len(machines)
        await self.ready()


@asynccontextmanager
async def live(document: Document, **settings: object) -> AsyncIterator[Live]:
    """A live cluster that is ready. Its stages believe the certificate of the router, if it has one."""
    cluster = Live(document)
    cluster.trust = str(settings.get("tls_cert", ""))
    cluster.key = str(settings.get("stage_key", ""))
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        stack.push_async_callback(_stop_all, cluster)
        addresses = [await cluster.start_stage() for _ in Deployment(document).stages]
        plain = msgspec.structs.asdict(SETTINGS)
        path = Path(stack.enter_context(TemporaryDirectory()), "plan.json")
        path.write_bytes(document.canonical())  # noqa: ASYNC240 - a test
        own = {"plan": str(path), "stages": ",".join(addresses), "http_port": 0, "drain_s": 10.0, "dilation": "1"}
        cluster.router = router = build(RouterSettings(**(plain | own | settings)))
        endpoints = await router.start()
        cluster.http, cluster.grpc = endpoints.http, endpoints.grpc
        cluster.scheme = "https" if settings.get("tls_cert") else "http"
        stack.push_async_callback(router.stop, 10.0)
        await cluster.ready()
        yield cluster


async def _stop_all(cluster: Live) -> None:
    for server in cluster.stages:
        await server.stop(0)


async def ask(client: AsyncOpenAI, number: int, model: str = MODEL, *, most_tokens: int = 1500) -> None:
    """A client; every third one asks for as much as it may, and leaves in mid-stream."""
    leaves = number % 3 == 0
    max_tokens = most_tokens if leaves else 4 + number % 23
    parts = await client.completions.create(
        model=model, prompt=[1] * (5 + 13 * number % 300), max_tokens=max_tokens, stream=True
    )
    seen = 0
    async for _ in parts:
        seen += 1
        if leaves and seen == 2:
            break
    await parts.close()


def recorded_digest(path: Path) -> str:
    """What the live session said at its end."""
    return json.loads(path.read_text().splitlines()[-1])["digest"]


def replayed_digest(document: Document, path: Path) -> str:
    """What the in-process engine says of the recording."""
    workload, served = open_workload(str(path)), Deployment(document)
    assert isinstance(workload, RecordedWorkload)
    header = workload.header
    assert (header.fleet_digest or header.plan_digest) == served.digest
    fleet, seen = served.with_scheduling(header.scheduling), DigestObserver()
    totals = inprocess.run_fleet(fleet, workload, seed=header.seed, observer=seen, paranoid=True)
    return seen.finish(totals.stages)
