"""The cluster engine of `stageline run`: same requests in, same records out."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from stageline.cluster.attempts import Retry, attempted
from stageline.cluster.local import LocalCluster, LocalOptions, written
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Observer, Request, RequestRecord, RunTotals, Workload
from stageline.errors import UsageError
from stageline.runtime import deadline
from stageline.runtime.deployment import Document
from stageline.runtime.logs import say
from stageline.units import NS_PER_S
from stageline.wire.channels import Dialer
from stageline.wire.frames import PayloadMode
from stageline.wire.router_client import RouterClient, RunCost, RunOrder, SentRows, WorkloadSpec
from stageline.wire.tls import TlsFiles

HEALTHY_AGAIN_S = 20.0  # after a death: a server that restarts has come back by then
NO_RETRY = Retry()


class Replay:
    """An Observer that keeps a reactive workload in step with the router, which makes the same requests from its spec.

    As in the router, requests that arrive before a time are taken before a request leaves at that time.
    """

    def __init__(self, workload: Workload, observer: Observer) -> None:
        self._workload, self._observer = workload, observer
        self._taken = -1

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        self._take(index)
        self._observer.token(index, now_ns, since_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        left_ns = record.arrival_ns if record.last_token_ns is None else record.last_token_ns
        self._take(record.index)
        while (arrival := self._workload.next_arrival_ns()) is not None and arrival < left_ns:
            self._taken = self._workload.take().index
        self._workload.finished(record.index, left_ns)
        self._observer.request(record)

    def _take(self, index: int) -> None:
        while self._taken < index:
            self._taken = self._workload.take().index


def arrivals_of(workload: Workload) -> Iterator[Request | Cancellation]:
    """All requests and cancellations of an open-loop workload."""
    while workload.next_arrival_ns() is not None:
        yield workload.take()


async def run_at(
    address: str,
    order: RunOrder,
    workload: Workload,
    observer: Observer,
    *,
    wait_s: float = 0.0,
    dialer: Dialer | None = None,
    retry: Retry = NO_RETRY,
) -> tuple[RunTotals, RunCost]:
    """One run on the cluster whose router listens at `address`; `wait_s`: wait that long for health.

    Raises StagelineError.
    """
    rows = SentRows(iter(()) if workload.reactive else arrivals_of(workload), keep=bool(retry.retries))
    if workload.reactive:
        if order.spec is None:
            raise UsageError("a closed loop runs on a cluster only as a spec: closed:users=...")
        observer = Replay(workload, observer)
    async with RouterClient(address, dialer) as client:
        if wait_s:
            await client.healthy(wait_s)
        return await attempted(
            lambda seen: client.run(order, rows, seen), observer, retry, lambda: client.healthy(HEALTHY_AGAIN_S)
        )


async def run_on_throwaway(
    document: Document,
    order: RunOrder,
    workload: Workload,
    observer: Observer,
    options: LocalOptions,
    retry: Retry = NO_RETRY,
) -> tuple[RunTotals, RunCost]:
    """One run on a cluster of local processes that lives for this run only. Raises StagelineError."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stageline-"))
        path = written(document, Path(folder))
        servers = await stack.enter_async_context(LocalCluster(document, path, options, say))
        await servers.healthy()
        retry = msgspec.structs.replace(
            retry, mend=partial(servers.replace_silent, options.stage_deadline_ns / NS_PER_S)
        )
        run = asyncio.ensure_future(run_at(servers.address, order, workload, observer, retry=retry))
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:  # Ctrl-C: nobody needs an orderly shutdown any more
            servers.kill()
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            raise


def run_on_cluster(
    document: Document,
    scheduling: Scheduling | None,
    workload: Workload,
    *,
    seed: int,
    observer: Observer,
    address: str | None = None,
    tls: TlsFiles | None = None,
    api_key: str = "",
    spec: WorkloadSpec | None = None,
    payload: PayloadMode | None = None,
    window: int = 0,
    retry: Retry = NO_RETRY,
    stage_deadline: str = deadline.DEFAULT,
) -> RunTotals:
    """Runs a plan with these settings, or a fleet with its own, to the end on the cluster at `address`, or on a
    throw-away one, whose stages may be silent for no longer than `stage_deadline`. Raises StagelineError.
    """
    order = RunOrder(
        plan_digest=document.digest(), scheduling=scheduling, seed=seed, payload=payload, window=window, spec=spec
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if address is not None:
            dialer = Dialer(tls, api_key=api_key)
            totals, _ = runner.run(run_at(address, order, workload, observer, dialer=dialer, retry=retry))
        else:
            flags = ("--no-live", "--trust-runs", f"--stage-deadline={stage_deadline}")
            deadline_ns = deadline.deadline_ns(stage_deadline)
            options = LocalOptions(restart=bool(retry.retries), router_flags=flags, stage_deadline_ns=deadline_ns)
            totals, _ = runner.run(run_on_throwaway(document, order, workload, observer, options, retry))
    return totals
