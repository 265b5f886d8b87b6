"""A cluster of local processes: one stage server per stage and replica, and a router."""

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import grpc
import msgspec
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stageline.cluster.containers import ROUTER, stage_servers
from stageline.cluster.part_log import PartLog
from stageline.cluster.process import Child
from stageline.errors import StagelineError, Unavailable
from stageline.runtime import deadline
from stageline.runtime.deployment import Deployment, Document
from stageline.runtime.names import stage_name
from stageline.runtime.server import Endpoints
from stageline.wire.channels import Dialer
from stageline.wire.router_client import RouterClient
from stageline.wire.tls import TlsFiles

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
STAGES_HEALTHY_S = 60.0
GRACE_S = 8.0  # between SIGTERM and SIGKILL; more than the servers take to drain


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a local cluster. Port 0: any free one. TLS is mutual: all servers present the same certificate.

    With `keep_logs` the last lines of every server are at hand (`Child.log`).
    """

    grpc_port: int = 0
    metrics_port: int = 0
    payload: str = "size"
    window: int = 0
    log_level: str = "warning"
    log_format: str = "text"
    drain_s: float = 2.0
    restart: bool = True
    keep_logs: bool = False
    tls: TlsFiles = TlsFiles()
    metrics_tls: bool = False
    api_key: str = ""
    router_flags: tuple[str, ...] = ("--no-live", "--trust-runs")
    stage_deadline_ns: int = deadline.deadline_ns(deadline.DEFAULT)


def written(document: Document, folder: Path) -> Path:
    """A file of its canonical form, which servers read."""
    path = folder / "plan.json"
    path.write_bytes(document.canonical())
    return path


class LocalCluster:
    """An async context manager: every server of a plan or a fleet listens inside it and has ended after it. `path`: its
    file, in canonical JSON.

    `crashed` is called with one sentence when a server ends unexpectedly. Without `restart`, `broken` then resolves to
    that sentence.
    """

    def __init__(self, document: Document, path: Path, options: LocalOptions, crashed: Callable[[str], None]) -> None:
        self._deployment, self._options, self._crashed = Deployment(document), options, crashed
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        common = ["--plan", str(path.resolve()), "--grpc-host", HOST, "--log-level", options.log_level]
        self._common = [*common, "--log-format", options.log_format, "--drain-s", str(options.drain_s)]
        self._common += [f"--tls-{name}={path}" for name, path in msgspec.structs.asdict(options.tls).items()]
        self._common += ["--metrics-tls"] * options.metrics_tls
        self._dialer = Dialer(options.tls, api_key=options.api_key.partition(",")[0])
        self._secrets = {"STAGELINE_STAGE_KEY": secrets.token_hex(16)}  # other users of the host open no session here
        self.stages = [self._stage(r, s) for r, s in self._deployment.stages]
        self.router: Child | None = None
        self.started = False  # all servers have been healthy: from now on one that ends is started again
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "LocalCluster":
        try:
            await self._start_stages()
            await self._start_router()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def address(self) -> str:
        """The router's gRPC address."""
        return self._endpoints(self.router).grpc

    @property
    def router_endpoints(self) -> Endpoints:
        """All addresses of the router."""
        return self._endpoints(self.router)

    def parts(self) -> dict[str, Child]:
        """The servers by the names that they would have as containers, the router first once there is one."""
        names = (server.name for server in stage_servers(self._deployment))
        router = {ROUTER: self.router} if self.router else {}
        return router | dict(zip(names, self.stages, strict=True))

    async def healthy(self) -> None:
        """Waits until every stage serves. Raises Unavailable, naming the stages that do not."""
        async with RouterClient(self.address, self._dialer) as client:
            await client.healthy(STAGES_HEALTHY_S, self._check)
        self.started = True

    def kill(self) -> None:
        """Kills all servers. It freezes them first, so that none logs that another has ended."""
        children = [*self.stages, *([self.router] if self.router else [])]
        for child in children:
            child.freeze()
        for child in children:
            child.kill()

    async def replace_silent(self, patience_s: float) -> None:
        """Kill every server that is there and does not answer in that time: it is started again, as after a crash."""
        children = [*self.stages, *([self.router] if self.router else [])]
        answers = await asyncio.gather(*(self._answers(child, patience_s) for child in children))
        for child, answered in zip(children, answers, strict=True):
            if not answered:
                log.warning("killed a server that does not answer", extra={"server": child.name})
                child.crash()

    async def _answers(self, child: Child, patience_s: float) -> bool:
        """Whether a server answers in that time; one that has ended refuses the connection, which is an answer."""
        if child.endpoints is None:
            return True
        async with self._dialer.channel(self._dialer.resolved(child.endpoints.grpc)) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=patience_s)  # type: ignore[attr-defined]
            except aio.AioRpcError as error:
                return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    def _check(self) -> None:
        """Raises Unavailable when a server has ended for good."""
        if self.broken.done():
            raise Unavailable(self.broken.result())

    def _stage(self, replica: int, stage: int) -> Child:
        flags = [*self._common, "--stage", str(stage), "--replica", str(replica)]
        name = stage_name(self._deployment.plan(replica), stage, self._deployment.replica_name(replica))
        return Child(name, "stage_server", flags, secrets=self._secrets, log=self._log())

    def _log(self) -> PartLog | None:
        return PartLog() if self._options.keep_logs else None

    async def _start_stages(self) -> None:
        """Starts all stages, a few at a time: the start of a Python process is CPU-bound."""
        slots = asyncio.Semaphore(2 * len(os.sched_getaffinity(0)))

        async def start(child: Child) -> None:
            async with slots:
                await child.start()
            self._keep(child)

        try:
            async with asyncio.TaskGroup() as group:
                for child in self.stages:
                    group.create_task(start(child))
        except* StagelineError as errors:
            raise errors.exceptions[0] from None

    async def _start_router(self) -> None:
        addresses = ",".join(self._endpoints(child).grpc for child in self.stages)
        options = self._options
        flags = [*self._common, "--stages", addresses, "--payload", options.payload, "--window", str(options.window)]
        flags += options.router_flags
        self.router = Child(
            "the router",
            "router",
            flags,
            grpc_port=options.grpc_port,
            metrics_port=options.metrics_port,
            secrets={"STAGELINE_API_KEY": options.api_key, **self._secrets},
            log=self._log(),
        )
        await self.router.start()
        self._keep(self.router)

    def _keep(self, child: Child) -> None:
        self._keepers.append(asyncio.create_task(child.keep(self._ended, restart=self._options.restart)))

    def _ended(self, sentence: str) -> None:
        self._crashed(sentence)
        if not self._options.restart and not self.broken.done():
            self.broken.set_result(sentence)

    async def _stop(self) -> None:
        """Stops the router first: it closes the stages' sessions."""
        if self.router:
            await self.router.stop(GRACE_S)
        await asyncio.gather(*(child.stop(GRACE_S) for child in self.stages))
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    @staticmethod
    def _endpoints(child: Child | None) -> Endpoints:
        if child is None or child.endpoints is None:
            raise Unavailable("the cluster has not been started")
        return child.endpoints
