"""One global event heap that drives routers, links and stages (rules 1 to 9)."""

import heapq
from collections.abc import Callable

from stageline.engine.settings import Scheduling
from stageline.engine.types import NEVER, Cancellation, Request, Workload
from stageline.plan.schema import Plan
from tests.reference import forming, groups, routing, sharing, speculation
from tests.reference.ledger import NOTHING, Ledger
from tests.reference.link import Link
from tests.reference.replica import Replica, blocks_per_identity
from tests.reference.sequence import Member, Microbatch, Sequence
from tests.reference.stage import Services, Stage, Way

# What comes first at one instant; those in the middle happen in fleets only.
STAGE, COMPLETION, BINDING, END, LANDING, ARRIVAL, FORMATION = range(7)

Event = tuple[int, int, int, int, int]  # time, kind, then what orders events of that kind

MAX_EVENTS = 5_000_000


class Engine:
    """A run. `run()` drives it to its end; `after_event` is called after every event."""

    def __init__(self, plan: Plan, scheduling: Scheduling, workload: Workload, seed: int) -> None:
        self.begin(workload, seed, scheduling.front_end_ns)
        self.scheduling = scheduling
        services = Services(plan, seed)
        for r in range(plan.replicas):
            self.add(Replica(*parts(plan, scheduling, r, seed), cache=sharing.cache_of(plan, scheduling)), services)

    def begin(self, workload: Workload, seed: int, front_end_ns: int) -> None:
        """An engine without replicas."""
        self.workload, self.seed, self.front_end_ns = workload, seed, front_end_ns
        self.replicas: list[Replica] = []
        self.services: list[Services] = []  # by replica, as are the next two
        self.links: list[list[Link]] = []
        self.stages: list[list[Stage]] = []
        self.heap: list[Event] = []
        self.payloads: dict[Event, tuple[Microbatch, Way]] = {}
        self.sequences: list[Sequence] = []  # taken, in arrival order
        self.refused: list[Request] = []
        self.finished: list[Sequence] = []
        self.next_in_turn = 0
        self.arrivals = 0
        self.now_ns = 0
        self.first_arrival_ns: int | None = None
        self.last_completion_ns: int | None = None

    def add(self, replica: Replica, services: Services) -> None:
        """A replica with its stages and links."""
        plan, r = replica.plan, replica.index
        self.replicas.append(replica)
        self.services.append(services)
        self.links.append([replica.link, *(Link(link, self.seed, r, v) for v, link in enumerate(plan.links) if v)])
        ledgers = ledgers_of(plan, replica.scheduling)
        self.stages.append([Stage(plan, i, services, ledger) for i, ledger in enumerate(ledgers)])

    # ---- the heap

    def mark(self, time_ns: int, kind: int) -> None:
        """Come back at this time for arrivals or formations."""
        event = (time_ns, kind, 0, 0, 0)
        if time_ns < NEVER and event not in self.heap:
            self.push(event)

    def push(self, event: Event) -> None:
        """To come."""
        heapq.heappush(self.heap, event)

    def next_through_ns(self) -> int | None:
        """When the next request will be through the front end, as far as it is known now."""
        arrival_ns = self.workload.next_arrival_ns()
        return None if arrival_ns is None else arrival_ns + self.front_end_ns

    def mark_arrival(self) -> None:
        """Come back when the next request reaches the router."""
        time_ns = self.next_through_ns()
        if time_ns is not None:
            assert time_ns >= self.now_ns, "an arrival in the past"
            self.mark(time_ns, ARRIVAL)

    def travel(self, visit: int, arrival_ns: int, microbatch: Microbatch, way: Way) -> None:
        """A microbatch arrives at a visit, or back at the router."""
        if visit == len(self.replicas[microbatch.replica].plan.visits):
            event = (arrival_ns, COMPLETION, microbatch.replica, microbatch.number, 0)
        else:
            event = (arrival_ns, STAGE, -visit, microbatch.replica, microbatch.number)
        self.payloads[event] = (microbatch, way)
        self.push(event)

    def run(self, after_event: Callable[["Engine"], None] | None = None) -> None:
        """Until nothing is left to happen."""
        events = 0
        self.mark_arrival()
        while self.heap:
            event = heapq.heappop(self.heap)
            self.now_ns, kind = event[0], event[1]
            self.handle(kind, event)
            events += 1
            assert events < MAX_EVENTS, "the run does not come to its end"
            if after_event is not None:
                after_event(self)
        self.settle()

    def handle(self, kind: int, event: Event) -> None:
        """One event."""
        if kind == STAGE:
            self.at_stage(-event[2], *self.payloads.pop(event))
        elif kind == COMPLETION:
            self.at_router(self.payloads.pop(event)[0])
        elif kind == ARRIVAL:
            self.at_arrival()
        else:
            self.at_formation()

    def settle(self) -> None:
        """The last releases leave in a frame without microbatches."""
        for replica, stages in zip(self.replicas, self.stages, strict=True):
            for stage in stages:
                stage.release(tuple(replica.releases))
                stage.ledger.cached = NOTHING
            replica.releases.clear()

    # ---- events

    def at_stage(self, visit: int, microbatch: Microbatch, way: Way) -> None:
        """Serve it and send it on."""
        r = microbatch.replica
        visits = self.replicas[r].plan.visits
        passed_on = self.stages[r][visits[visit].stage].serve(visit, self.now_ns, microbatch, way)
        tokens = microbatch.sampled if visit == len(visits) - 1 else microbatch.tokens
        arrival_ns = self.links[r][visit + 1].send(passed_on.prev_end_ns, microbatch.number, tokens)
        self.travel(visit + 1, arrival_ns, microbatch, passed_on)

    def at_router(self, microbatch: Microbatch) -> None:
        """A microbatch is back: its credit, its tokens, its finished sequences."""
        replica = self.replicas[microbatch.replica]
        if not replica.has_credit():
            replica.credit_since_ns = self.now_ns
        replica.in_flight.remove(microbatch)
        replica.just_returned = True
        for position in range(len(microbatch.members)):
            self.returned(replica, microbatch, position)
        self.last_completion_ns = self.now_ns
        self.mark(self.now_ns, FORMATION)
        self.mark_arrival()

    def returned(self, replica: Replica, microbatch: Microbatch, position: int) -> None:
        """One member of a microbatch is back."""
        member = microbatch.members[position]
        member.sequence.in_flight -= 1
        if member.samples:
            self.sampled(replica, member)

    def sampled(self, replica: Replica, member: Member) -> None:
        """Tokens are back."""
        sequence = member.sequence
        tokens = self.verified(replica, member) if member.decode else 1
        sequence.tokens_ns += [self.now_ns] * tokens
        sequence.generated += tokens
        sequence.ready = sequence.generated < sequence.request.output_tokens
        if not sequence.ready:
            self.finish(replica, sequence)

    def verified(self, replica: Replica, member: Member) -> int:
        """A decode step is back: the tokens that it yields. What was rejected is not in the context."""
        sequence, drafts = member.sequence, member.tokens - 1
        right = speculation.accepted(replica.scheduling, self.seed, sequence, drafts)
        sequence.written_tokens = member.written_before + 1 + right
        tokens = min(right + 1, sequence.request.output_tokens - sequence.generated)
        if drafts:
            sequence.steps += 1
            sequence.drafted_tokens += drafts
            sequence.accepted_tokens += tokens - 1
        return tokens

    def finish(self, replica: Replica, sequence: Sequence) -> None:
        """A sequence leaves the system."""
        replica.drop(sequence)
        replica.running.remove(sequence)
        if not replica.requests:
            replica.ran_out_ns = self.now_ns
        self.finished.append(sequence)
        self.workload.finished(sequence.index, self.now_ns)

    def at_arrival(self) -> None:
        """Everything that reaches the router at this instant, in file order."""
        while self.next_through_ns() == self.now_ns:
            self.take(self.workload.take())
        self.mark(self.now_ns, FORMATION)
        self.mark_arrival()

    def take(self, event: Request | Cancellation) -> None:
        """One row of the workload."""
        assert isinstance(event, Request), "only fleets know clients that leave"
        self.arrive(event)

    def arrive(self, request: Request) -> None:
        """Refuse a request or bind it to its replica."""
        assert request.arrival_ns + self.front_end_ns == self.now_ns
        order = self.arrivals
        self.arrivals += 1
        if self.first_arrival_ns is None:
            self.first_arrival_ns = self.now_ns
        if not routing.is_taken(self.replicas[0].plan, self.scheduling, request):
            self.refused.append(request)
            self.workload.finished(request.index, self.now_ns)
            return
        replica = routing.choose(self.replicas, self.scheduling, self.next_in_turn, request)
        self.next_in_turn += 1
        if not replica.requests:
            replica.arrived_at_empty = True
        sequence = Sequence(request, order, replica.index, todo_tokens=request.prompt_tokens)
        groups.arrived(replica, sequence)
        replica.queue.append(sequence)
        replica.just_arrived = True
        self.sequences.append(sequence)

    def at_formation(self) -> None:
        """One formation per replica, in index order."""
        for replica in self.replicas:
            self.form(replica)
            self.note_reason(replica)

    def note_reason(self, replica: Replica) -> None:
        """Why nothing is dispatched from here on; comes back when the gate opens."""
        reason = replica.reason(self.now_ns)
        if reason in ("gate", "kv_blocked") and groups.is_engine(replica):
            reason = "credit" if replica.in_flight else "kv_blocked"
        if reason != replica.reasons[-1][1]:
            replica.reasons.append((self.now_ns, reason))
        if reason == "gate":
            self.mark(replica.gate_ns(), FORMATION)

    def form(self, replica: Replica) -> None:
        """Form and dispatch a microbatch if a credit is free, the gate is open and there is work."""
        if replica.has_work() and not replica.had_work:
            self.stamp_work(replica)
        replica.arrived_at_empty = False
        if groups.is_engine(replica):
            self.form_as_engine(replica)
        elif replica.has_work() and replica.has_credit() and self.now_ns >= replica.gate_ns():
            microbatch = forming.form(replica, self.now_ns)
            if microbatch is not None:
                self.dispatch(replica, microbatch)
                self.leave_work(replica)
        replica.had_work = replica.has_work()

    def stamp_work(self, replica: Replica) -> None:
        """There was no work, and there is some now."""
        replica.work_since_ns = replica.transfer_since_ns = self.now_ns
        replica.empty_since_ns = replica.ran_out_ns if replica.arrived_at_empty else self.now_ns

    def leave_work(self, replica: Replica) -> None:
        """A dispatch: what work is left over waits from now on."""
        replica.work_since_ns = replica.empty_since_ns = replica.transfer_since_ns = self.now_ns

    def form_as_engine(self, replica: Replica) -> None:
        """Whatever leaves at this instant, if the engine looks at its work at all."""
        if replica.in_flight or replica.just_returned:
            replica.credit_since_ns = self.now_ns
        if replica.just_returned or (replica.has_work() and groups.may_form(replica)):
            for group in groups.attempts(replica):
                microbatch = forming.form(replica, self.now_ns, group)
                if microbatch is not None:
                    self.dispatch(replica, microbatch)
                    self.leave_work(replica)
        replica.just_returned = replica.just_arrived = False

    def dispatch(self, replica: Replica, microbatch: Microbatch) -> None:
        """Through the router's own serial work and over link 0; the gate follows."""
        settings = replica.scheduling
        work_ns = settings.overhead_ns + settings.draft_ns * microbatch.max_drafts
        replica.depart_ns = max(self.now_ns, replica.depart_ns) + work_ns
        arrival_ns = replica.link.send(replica.depart_ns, microbatch.number, microbatch.tokens)
        service_ns = self.services[replica.index].service_ns(0, microbatch)
        replica.gate_free_ns = max(replica.gate_free_ns, arrival_ns) + service_ns
        self.travel(0, arrival_ns, microbatch, Way(self.now_ns))


def parts(
    plan: Plan, scheduling: Scheduling, index: int, seed: int
) -> tuple[Plan, Scheduling, int, Link, list[Ledger]]:
    """What a replica is made of."""
    return plan, scheduling, index, Link(plan.links[0], seed, index, 0), ledgers_of(plan, scheduling)


def ledgers_of(plan: Plan, scheduling: Scheduling) -> list[Ledger]:
    """Empty ones, one per stage."""
    identity_blocks = blocks_per_identity(plan, scheduling)
    return [Ledger(stage, plan.block_tokens, identity_blocks) for stage in plan.stages]
