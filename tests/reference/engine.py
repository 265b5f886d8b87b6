"""One global event heap that drives routers, links and stages (rules 1 to 9)."""

import heapq
from collections.abc import Callable

from stageline.engine.settings import Scheduling
from stageline.engine.types import NEVER, Request, Workload
from stageline.plan.schema import Plan
from tests.reference import forming, groups, routing, sharing, speculation
from tests.reference.ledger import NOTHING, Ledger
from tests.reference.link import Link
from tests.reference.replica import Replica, blocks_per_identity
from tests.reference.sequence import Member, Microbatch, Sequence
from tests.reference.stage import Services, Stage, Way

# What comes first at one instant.
STAGE, COMPLETION, ARRIVAL, FORMATION = range(4)

Event = tuple[int, int, int, int, int]  # time, kind, then what orders events of that kind

MAX_EVENTS = 5_000_000


class Engine:
    """A run. `run()` drives it to its end; `after_event` is called after every event."""

    def __init__(self, plan: Plan, scheduling: Scheduling, workload: Workload, seed: int) -> None:
        self.plan, self.scheduling, self.workload, self.seed = plan, scheduling, workload, seed
        self.services = Services(plan, seed)
        identity_blocks = blocks_per_identity(plan, scheduling)
        replicas, visits = range(plan.replicas), range(len(plan.visits))
        self.links = [[Link(link, seed, r, v) for v, link in enumerate(plan.links)] for r in replicas]
        self.replicas = [
            Replica(
                plan,
                scheduling,
                r,
                self.links[r][0],
                [Ledger(s, plan.block_tokens, identity_blocks) for s in plan.stages],
                cache=sharing.cache_of(plan, scheduling),
            )
            for r in replicas
        ]
        self.stages = [
            [
                Stage(plan, i, self.services, Ledger(s, plan.block_tokens, identity_blocks))
                for i, s in enumerate(plan.stages)
            ]
            for r in replicas
        ]
        self.last_visit = len(visits) - 1
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

    # ---- the heap

    def mark(self, time_ns: int, kind: int) -> None:
        """Come back at this time for arrivals or formations."""
        event = (time_ns, kind, 0, 0, 0)
        if time_ns < NEVER and event not in self.heap:
            heapq.heappush(self.heap, event)

    def next_through_ns(self) -> int | None:
        """When the next request will be through the front end, as far as it is known now."""
        arrival_ns = self.workload.next_arrival_ns()
        return None if arrival_ns is None else arrival_ns + self.scheduling.front_end_ns

    def mark_arrival(self) -> None:
        """Come back when the next request reaches the router."""
        time_ns = self.next_through_ns()
        if time_ns is not None:
            assert time_ns >= self.now_ns, "an arrival in the past"
            self.mark(time_ns, ARRIVAL)

    def travel(self, visit: int, arrival_ns: int, microbatch: Microbatch, way: Way) -> None:
        """A microbatch arrives at a visit, or back at the router."""
        if visit > self.last_visit:
            event = (arrival_ns, COMPLETION, microbatch.replica, microbatch.number, 0)
        else:
            event = (arrival_ns, STAGE, -visit, microbatch.replica, microbatch.number)
        self.payloads[event] = (microbatch, way)
        heapq.heappush(self.heap, event)

    def run(self, after_event: Callable[["Engine"], None] | None = None) -> None:
        """Until nothing is left to happen."""
        events = 0
        self.mark_arrival()
        while self.heap:
            event = heapq.heappop(self.heap)
            self.now_ns, kind = event[0], event[1]
            if kind == STAGE:
                self.at_stage(-event[2], *self.payloads.pop(event))
            elif kind == COMPLETION:
                self.at_router(self.payloads.pop(event)[0])
            elif kind == ARRIVAL:
                self.at_arrival()
            else:
                self.at_formation()
            events += 1
            assert events < MAX_EVENTS, "the run does not come to its end"
            if after_event is not None:
                after_event(self)
        self.settle()

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
        passed_on = self.stages[r][self.plan.visits[visit].stage].serve(visit, self.now_ns, microbatch, way)
        tokens = microbatch.sampled if visit == self.last_visit else microbatch.tokens
        arrival_ns = self.links[r][visit + 1].send(passed_on.prev_end_ns, microbatch.number, tokens)
        self.travel(visit + 1, arrival_ns, microbatch, passed_on)

    def at_router(self, microbatch: Microbatch) -> None:
        """A microbatch is back: its credit, its tokens, its finished sequences."""
        replica = self.replicas[microbatch.replica]
        if not replica.has_credit():
            replica.credit_since_ns = self.now_ns
        replica.in_flight.remove(microbatch)
        replica.just_returned = True
        for member in microbatch.members:
            sequence = member.sequence
            sequence.in_flight -= 1
            if member.samples:
                tokens = self.verified(member) if member.decode else 1
                sequence.tokens_ns += [self.now_ns] * tokens
                sequence.generated += tokens
                sequence.ready = sequence.generated < sequence.request.output_tokens
                if not sequence.ready:
                    self.finish(replica, sequence)
        self.last_completion_ns = self.now_ns
        self.mark(self.now_ns, FORMATION)
        self.mark_arrival()

    def verified(self, member: Member) -> int:
        """A decode step is back: the tokens that it yields. What was rejected is not in the context."""
        sequence, drafts = member.sequence, member.tokens - 1
        right = speculation.accepted(self.scheduling, self.seed, sequence, drafts)
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
            request = self.workload.take()
            assert isinstance(request, Request), "the reference knows no clients that leave"
            self.arrive(request)
        self.mark(self.now_ns, FORMATION)
        self.mark_arrival()

    def arrive(self, request: Request) -> None:
        """Refuse a request or bind it to its replica."""
        assert request.arrival_ns + self.scheduling.front_end_ns == self.now_ns
        order = self.arrivals
        self.arrivals += 1
        if self.first_arrival_ns is None:
            self.first_arrival_ns = self.now_ns
        if not routing.is_taken(self.plan, self.scheduling, request):
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
            replica.work_since_ns = self.now_ns
            replica.empty_since_ns = replica.ran_out_ns if replica.arrived_at_empty else self.now_ns
        replica.arrived_at_empty = False
        if groups.is_engine(replica):
            self.form_as_engine(replica)
        elif replica.has_work() and replica.has_credit() and self.now_ns >= replica.gate_ns():
            microbatch = forming.form(replica, self.now_ns)
            if microbatch is not None:
                self.dispatch(replica, microbatch)
                replica.work_since_ns = replica.empty_since_ns = self.now_ns
        replica.had_work = replica.has_work()

    def form_as_engine(self, replica: Replica) -> None:
        """Whatever leaves at this instant, if the engine looks at its work at all."""
        if replica.in_flight or replica.just_returned:
            replica.credit_since_ns = self.now_ns
        if replica.just_returned or (replica.has_work() and groups.may_form(replica)):
            for group in groups.attempts(replica):
                microbatch = forming.form(replica, self.now_ns, group)
                if microbatch is not None:
                    self.dispatch(replica, microbatch)
                    replica.work_since_ns = replica.empty_since_ns = self.now_ns
        replica.just_returned = replica.just_arrived = False

    def dispatch(self, replica: Replica, microbatch: Microbatch) -> None:
        """Through the router's own serial work and over link 0; the gate follows."""
        work_ns = self.scheduling.overhead_ns + self.scheduling.draft_ns * microbatch.max_drafts
        replica.depart_ns = max(self.now_ns, replica.depart_ns) + work_ns
        arrival_ns = replica.link.send(replica.depart_ns, microbatch.number, microbatch.tokens)
        service_ns = self.services.service_ns(0, microbatch)
        replica.gate_free_ns = max(replica.gate_free_ns, arrival_ns) + service_ns
        self.travel(0, arrival_ns, microbatch, Way(self.now_ns))
