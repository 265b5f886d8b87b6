"""The router's machines of a live session and their links to the stages. Done again, a session has another attempt."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from router.cluster.connections import StageConnections
from router.cluster.stages import StageTable
from router.live.machine import LiveMachine
from router.live.options import LiveOptions
from router.live.workload import LiveWorkload
from stageline.engine.microbatch import Item
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.engine.types import Cancellation, Observer, Request
from stageline.report.spans.recorder import TraceRecorder
from stageline.runtime.shell import Follower, SessionShell
from stageline.sync.foresight import ForesightedConductor
from stageline.sync.realtime import LiveClock

Event = tuple[int, Request | Cancellation]  # with its stamp


class Ground(NamedTuple):
    """What all attempts of a session stand on."""

    fleet: ServedFleet
    table: StageTable
    options: LiveOptions
    clock: LiveClock


class Eyes(NamedTuple):
    """Who sees what an attempt does."""

    observer: Observer
    follower: Follower
    trace: TraceRecorder | None = None
    dispatched: Callable[[int, Iterable[Item]], None] | None = None
    polled: Callable[[], None] | None = None


class Past(NamedTuple):
    """What an earlier attempt has been through: all that came, how far emulated time got, the stamp of what comes."""

    events: Sequence[Event]
    told_ns: int
    edge_ns: int


class Attempt:
    """From Open to Close. With a `past` it replays that first, unpaced, while the clock stands still."""

    def __init__(self, session: str, ground: Ground, eyes: Eyes, past: Past | None = None) -> None:
        fleet, table, options, clock = ground
        self.id = session  # what it is called at the stages
        self.workload = LiveWorkload(options.quantum_ns, options.dilation)
        if past is not None:
            self.workload.resume(past.events, past.edge_ns)
        self.router = Router(fleet, options.seed, eyes.observer, eyes.trace)
        ahead_ns = int(options.tolerance_ns / options.dilation)
        self.conductor = ForesightedConductor(self.router, self.workload, options.seed, eyes.trace, ahead_ns)
        self.machine = LiveMachine(self.conductor, self.workload, clock, options.tolerance_ns, eyes.dispatched)
        if past is not None:
            self.machine.resume_at(past.told_ns)
        self.shell = SessionShell("the router", self.machine, follower=eyes.follower, after_poll=eyes.polled)
        self.connections = StageConnections(self.id, table, self.shell, options.payload, clock)
        self.connections.carry_kv_of(self.router)

    @property
    def progress(self) -> tuple[int, ...]:
        """How far it has come: figures that only grow, in every attempt through the same values."""
        router = self.router
        formed = [replica.formed for replica in router.replicas]
        return router.arrived, router.finished, router.failed, self.conductor.last_completion_ns, *formed

    def is_as_far_as(self, other: "Attempt") -> bool:
        """Whether it has been through all that the other one has."""
        return all(mine >= theirs for mine, theirs in zip(self.progress, other.progress, strict=True))
