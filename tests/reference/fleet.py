"""Rules 10 to 12: pools of replicas behind one router, on one heap of events in emulated time."""

from collections.abc import Mapping

from stageline.engine.types import Cancellation, Request, Workload
from tests.reference import groups, handover, leaving, loading, sharing, tiers
from tests.reference.engine import BINDING, END, FORMATION, LANDING, Engine, Event, parts
from tests.reference.fleet_replica import Book, FleetReplica, Journey, Transfer
from tests.reference.fleet_routing import Routes, part_of
from tests.reference.fleet_types import Fleet
from tests.reference.replica import Replica
from tests.reference.sequence import Microbatch, Sequence
from tests.reference.stage import Services
from tests.reference.states import Story

IDLE = ("empty", "starved", "transfer")  # reasons without work


class FleetEngine(Engine):
    """A run of a fleet. `models`: the model of each request that names one."""

    def __init__(self, fleet: Fleet, workload: Workload, seed: int, models: Mapping[int, str] | None = None) -> None:
        self.begin(workload, seed, fleet.front_end_ns)
        self.fleet, self.book = fleet, Book()
        self.fleet_replicas: list[FleetReplica] = []
        store = tiers.TierState(fleet.store) if fleet.store is not None else None
        for pool in fleet.pools:
            services = Services(pool.plan, seed)
            for _ in range(pool.plan.replicas):
                made_of = parts(pool.plan, pool.scheduling, len(self.replicas), seed)
                cache = sharing.cache_of(pool.plan, pool.scheduling)
                host = tiers.TierState(pool.host, below=store) if pool.host is not None else None
                replica = FleetReplica(*made_of, cache=cache, pool=pool, book=self.book, host=host, store=store)
                replica.offload, replica.load_policy, replica.sees_host = fleet.offload, fleet.load, fleet.sees_host
                self.fleet_replicas.append(replica)
                self.add(replica, services)
        self.routes = Routes(fleet, self.fleet_replicas, models or {})
        self.transfers: list[Transfer] = []
        self.landed_bytes = 0
        self.last_end_at_landing_ns = 0
        self.store = store
        self.coming: dict[Event, Sequence | Transfer | tiers.Load] = {}
        self.bookings = 0
        self.joins = 0
        self.to_form: set[int] = set()  # replicas that have a formation to come at this instant

    @property
    def source_first(self) -> bool:
        """Whether the prefill comes before the room for decoding."""
        return self.fleet.handover == "source-first"

    @property
    def first_token_counts(self) -> bool:
        """Whether the prefill replica's token is the request's first one."""
        return self.fleet.first_token == "prefill"

    # ---- events

    def handle(self, kind: int, event: Event) -> None:
        """One event, at the time that all replicas know."""
        self.book.now_ns = self.now_ns
        what = self.coming.pop(event, None)
        if kind == BINDING:
            assert isinstance(what, Sequence)
            handover.bind(self, what)
        elif kind == END:
            assert isinstance(what, Transfer)
            handover.end(self, what)
        elif kind == LANDING and isinstance(what, tiers.Load):
            loading.land(self, what)
        elif kind == LANDING:
            assert isinstance(what, Transfer)
            handover.land(self, what)
        else:
            super().handle(kind, event)

    def post(self, event: Event, what: Sequence | Transfer | tiers.Load) -> None:
        """To come."""
        self.coming[event] = what
        self.push(event)

    def next_booking(self) -> int:
        """Transfers and loads are numbered in the order of booking."""
        self.bookings += 1
        return self.bookings - 1

    def take(self, event: Request | Cancellation) -> None:
        """One row of the workload."""
        if isinstance(event, Cancellation):
            leaving.leave(self, event.index)
        else:
            self.arrive(event)

    def arrive(self, request: Request) -> None:
        """Refuse a request, or bind it to its replica, and to the one that decodes it where that comes first."""
        assert request.arrival_ns + self.front_end_ns == self.now_ns
        self.arrivals += 1
        if self.first_arrival_ns is None:
            self.first_arrival_ns = self.now_ns
        journey = self.book.journeys[request.index] = Journey(request, Story(request.index))
        replica = self.routes.for_arrival(request)
        if replica is None:
            self.book.move(request.index, "refuse")
            self.refused.append(request)
            self.workload.finished(request.index, self.now_ns)
            return
        part = part_of(replica, request)
        journey.first = Sequence(part, 0, replica.index, todo_tokens=part.prompt_tokens)
        self.sequences.append(journey.first)
        if replica.pool.role != "prefill" or self.source_first or self.routes.needs_no_decode(request):
            self.book.move(request.index, "bind", replica.index)
            self.join(replica, journey.first)
        else:
            journey.first.whole = self.fleet.streamed
            decode = self.routes.for_handover(request)
            self.book.move(request.index, "want", decode.index)
            handover.join_for_handover(self, journey, decode, generated=0)

    def join(self, replica: FleetReplica, sequence: Sequence) -> None:
        """Into the queue of a replica, behind all who joined it before."""
        sequence.order = self.joins
        self.joins += 1
        if not replica.own:
            replica.arrived_at_empty = True
        groups.arrived(replica, sequence)
        replica.queue.append(sequence)
        self.wake(replica)

    def at_router(self, microbatch: Microbatch) -> None:
        """A microbatch is back: its replica has a formation."""
        self.to_form.add(microbatch.replica)
        super().at_router(microbatch)

    def wake(self, replica: FleetReplica) -> None:
        """Something happened at a replica: it gets a formation at this instant, one more if it had one."""
        replica.just_arrived = True
        self.to_form.add(replica.index)
        self.mark(self.now_ns, FORMATION)

    def left(self, replica: FleetReplica) -> None:
        """A request of its own has left it, or awaits KV from now on."""
        if not replica.own:
            replica.ran_out_ns = self.now_ns

    def returned(self, replica: Replica, microbatch: Microbatch, position: int) -> None:
        """One member of a microbatch is back."""
        assert isinstance(replica, FleetReplica)
        member = microbatch.members[position]
        if not member.sequence.leaving:
            tiers.write_back(replica, member)
        if member.sequence.leaving:
            member.sequence.in_flight -= 1
            leaving.returned(self, member.sequence)
        elif replica.pool.role == "prefill":
            member.sequence.in_flight -= 1
            handover.chunk_returned(self, replica, microbatch, position)
        else:
            super().returned(replica, microbatch, position)

    def finish(self, replica: Replica, sequence: Sequence) -> None:
        """The last token of a request is back."""
        assert isinstance(replica, FleetReplica)
        journey = self.book.journeys[sequence.index]
        self.book.move(sequence.index, "finish", replica.index)
        journey.ended_ns = self.now_ns
        replica.remove(sequence)
        self.left(replica)
        self.ended(journey)

    def ended(self, journey: Journey) -> None:
        """A request is over; its client may send another."""
        assert journey.first is not None
        self.finished.append(journey.first)
        self.workload.finished(journey.request.index, self.now_ns)
        self.mark_arrival()

    def close(self, journey: Journey) -> None:
        """The last KV of a request that is over, or whose client has left, has landed."""
        if journey.ended_ns is not None:
            handover.give_back(self, journey)
        else:
            assert journey.first is not None
            leaving.returned(self, journey.first)
            if journey.ended_ns is not None:
                self.last_end_at_landing_ns = self.now_ns

    # ---- formations

    def at_formation(self) -> None:
        """One per replica to which something has happened, in index order; one more where an admission asks for it."""
        self.to_form |= {r.index for r in self.fleet_replicas if r.gate_opens_ns == self.now_ns}
        while self.to_form:
            replica = self.fleet_replicas[min(self.to_form)]
            self.to_form.remove(replica.index)
            handover.admit(self, replica)
            self.form(replica)
            self.begin_loads()
            self.note_reason(replica)

    def begin_loads(self) -> None:
        """What the formation has booked lands some time."""
        for load in self.book.loads:
            self.post((load.landed_ns, LANDING, self.next_booking(), 0, 0), load)
            self.wake(self.fleet_replicas[load.replica])
        self.book.loads.clear()

    def dispatch(self, replica: Replica, microbatch: Microbatch) -> None:
        """It leaves; then whoever of the hand-overs has room now."""
        assert isinstance(replica, FleetReplica)
        super().dispatch(replica, microbatch)
        replica.last_dispatch_ns = self.now_ns
        replica.sent([member.sequence.index for member in microbatch.members])
        handover.admit(self, replica)

    def stamp_work(self, replica: Replica) -> None:
        """There was no work, and there is some now."""
        assert isinstance(replica, FleetReplica)
        since_ns = replica.all_await_since_ns
        replica.work_since_ns = self.now_ns
        replica.transfer_since_ns = self.now_ns if since_ns is None else since_ns
        replica.empty_since_ns = replica.ran_out_ns if replica.arrived_at_empty else replica.transfer_since_ns

    def note_reason(self, replica: Replica) -> None:
        """Why nothing is dispatched; a wait for KV, or for room, that came to nothing is told otherwise afterwards."""
        assert isinstance(replica, FleetReplica)
        reason, before = replica.reason(self.now_ns), replica.reasons[-1][1]
        if reason != "transfer":
            replica.all_await_since_ns = None
        elif replica.all_await_since_ns is None:
            replica.all_await_since_ns = self.now_ns
        if reason in IDLE:
            vanished = before not in IDLE
            came_to_nothing = before in ("empty", "transfer") and replica.ran_out_ns == self.now_ns
            if vanished or came_to_nothing or (before, reason) == ("transfer", "empty"):
                self.tell_otherwise(replica, reason)
        replica.had_own = bool(replica.own)
        super().note_reason(replica)
        replica.gate_opens_ns = replica.gate_ns() if replica.reasons[-1][1] == "gate" else None

    def tell_otherwise(self, replica: FleetReplica, reason: str) -> None:
        """Since its last dispatch there was no work after all: nobody's turn came."""
        since_ns = replica.last_dispatch_ns
        if since_ns == self.now_ns:
            return
        replica.reasons = [entry for entry in replica.reasons if entry[0] < since_ns]
        replica.reasons.append((since_ns, "starved"))
        if reason != "starved":
            replica.reasons.append((replica.ran_out_ns, "empty"))
