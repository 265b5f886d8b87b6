"""What a client wants to have run, read from its messages."""

import asyncio
import contextlib
from typing import NamedTuple

import msgspec
from grpc import aio

from router.runs.workload import SentWorkload
from stageline.engine.fleet import Fleet
from stageline.engine.served import ServedFleet
from stageline.engine.settings import read_scheduling
from stageline.engine.types import Workload
from stageline.errors import BadInput, PlanMismatch, ProtocolError, Unavailable
from stageline.runtime.deployment import Deployment
from stageline.v1 import router_pb2
from stageline.wire.runs import requests_of
from stageline.wire.version import check_version
from stageline.workload import open_workload
from stageline.workload.spec import parse_spec

_HEAR_S = 5.0
_SILENT_S = 10.0  # between two messages of a client that sends its requests
RunContext = aio.ServicerContext[router_pb2.RunRequest, router_pb2.RunReply]


class Order(NamedTuple):
    """What a client wants to have run."""

    start: router_pb2.RunStart
    fleet: ServedFleet
    workload: Workload
    total: int


async def read_order(context: RunContext, deployment: Deployment, *, trust: bool) -> Order:
    """Read the start and all requests. Raises StagelineError, also for a client that says nothing for a while."""
    first = await _read(context)
    if not isinstance(first, router_pb2.RunRequest) or first.WhichOneof("message") != "start":
        raise ProtocolError("the first message of a run is its start")
    start = first.start
    check_version("the client", start.version, start.wire, "this router")
    if start.plan_digest and start.plan_digest != deployment.digest:
        kind = deployment.kind
        raise PlanMismatch(
            f"this cluster serves {kind} {deployment.digest}, the run is for {start.plan_digest}; "
            f"run the {kind} that the cluster was started with"
        )
    fleet = _fleet(start.scheduling, deployment, trust=trust)
    workload, total = await _workload(start, context, trust=trust)
    # The messages of a client that has left end like those of one that has sent all. Only that one can be answered.
    await context.send_initial_metadata(())
    return Order(start, fleet, workload, total)


def _fleet(scheduling: bytes, deployment: Deployment, *, trust: bool) -> ServedFleet:
    """What is run: a plan alone with the client's settings, or the fleet as the router's own file has it."""
    if isinstance(deployment.document, Fleet):
        if scheduling:
            hint = "change the fleet file, and start the cluster again"
            raise BadInput("scheduling", scheduling.decode(errors="replace"), "the pools have their own settings", hint)
        return deployment.fleet
    try:
        settings = read_scheduling(scheduling or b"{}")
    except msgspec.DecodeError as error:
        raise BadInput("scheduling", None, str(error)) from None
    if settings.users_classes and not trust:
        named, hint = settings.users_classes[0], "start the router with --trust-runs"
        raise BadInput("scheduling policy", named, "a class by name", hint)
    return deployment.with_scheduling(settings)


async def _workload(start: router_pb2.RunStart, context: RunContext, *, trust: bool) -> tuple[Workload, int]:
    """The run's workload, and how many requests it has if that is known."""
    rows = SentWorkload()
    while isinstance(request := await _read(context), router_pb2.RunRequest):
        if request.WhichOneof("message") != "rows":
            raise ProtocolError("after the start a run takes rows")
        rows.add(requests_of(request.rows, rows.total))
    if not start.HasField("workload"):
        return rows, rows.total
    if rows.total:
        raise ProtocolError("a run takes rows or a workload, not both")
    spec = start.workload
    if parse_spec(spec.text) is None:
        raise BadInput("workload", spec.text, "not a synthetic workload", "send the rows of a file instead")
    if "trace" in spec.text and not trust:
        raise BadInput("workload", spec.text, "names a file of the router's host", "start the router with --trust-runs")
    workload = open_workload(
        spec.text, seed=spec.seed, rate_scale=spec.rate_scale or "1", requests=spec.requests or None
    )
    return workload, spec.requests


async def _read(context: RunContext) -> object:
    """The next message of a client, or grpc's EOF. Raises Unavailable for one that neither sends nor ends."""
    try:
        async with asyncio.timeout(_SILENT_S):
            return await context.read()
    except TimeoutError:
        raise Unavailable(
            f"the client of the run said nothing for {_SILENT_S:g} s; a run begins when all its requests are here"
        ) from None


async def hear_out(context: RunContext) -> None:
    """Take what the client still sends: one that is cut off while it writes never learns why."""
    with contextlib.suppress(TimeoutError, aio.UsageError):
        async with asyncio.timeout(_HEAR_S):
            while isinstance(await context.read(), router_pb2.RunRequest):
                pass
