"""The router's rules (rules 5, 6 and 9): binds requests, counts tokens, forms microbatches. It is told the time."""

from itertools import islice

from stageline.engine.microbatch import Item
from stageline.engine.policies.routing import ROUTING
from stageline.engine.replica import Replica
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence, refused
from stageline.engine.settings import Scheduling
from stageline.engine.types import MemberObserver, Observer, Outcome, Request


class Router:
    """At one instant, in this order: `complete` (replica, sequence), `arrive` (file order), `form` once per replica."""

    def __init__(
        self, route: Route, scheduling: Scheduling, seed: int, observer: Observer, members: MemberObserver | None = None
    ) -> None:
        self.route = route
        self.replicas = [Replica(route, i, scheduling, seed) for i in range(route.plan.replicas)]
        self._routing = ROUTING.make(scheduling)
        self._observer, self._members = observer, members
        self.sequences: dict[int, Sequence] = {}  # in the system, by request index
        self.arrived = 0
        self.finished = 0
        self.failed = 0  # refused, cancelled, given up

    def arrive(self, request: Request) -> bool:
        """Bind a request to a replica; False: refused, it is longer than the model's context or fits no ledger."""
        self.arrived += 1
        if self.too_long(request) or not self.fits_empty(request):
            self.failed += 1
            self._observer.request(refused(request))
            return False
        index = self._routing.choose(self.replicas, request)
        sequence = Sequence(request, index)
        self.sequences[request.index] = sequence
        self.replicas[index].enqueue(sequence)
        return True

    def too_long(self, request: Request) -> bool:
        """Whether prompt and largest output are longer than the model's context."""
        limit = self.route.plan.max_context_tokens
        return 0 < limit < request.prompt_tokens + request.max_output_tokens

    def fits_empty(self, request: Request) -> bool:
        """Whether it would fit ledgers that nobody else uses."""
        return self.replicas[0].fits_empty(request)

    def complete(self, replica: int, now_ns: int) -> list[int]:
        """The oldest microbatch of a replica is back. Returns the requests that ended with it."""
        rep = self.replicas[replica]
        ended = []
        token = self._observer.token
        for sequence, rows in rep.complete(now_ns):
            if sequence.cancelled:
                if not sequence.in_flight:
                    self._end(sequence, now_ns, "cancelled")
                    ended.append(sequence.request.index)
                continue
            if not rows:
                continue
            if rows > 1:
                self._accept(rep, sequence, rows, now_ns)
            sequence.generated += 1
            rep.outstanding_tokens -= 1
            token(sequence.request.index, now_ns, sequence.last_ns)
            if sequence.first_ns is None:
                sequence.first_ns = now_ns
            sequence.last_ns = now_ns
            if sequence.generated < sequence.request.output_tokens:
                rep.set_ready(sequence)
            else:
                self._end(sequence, now_ns, "finished")
                ended.append(sequence.request.index)
        return ended

    def cancel(self, index: int, now_ns: int) -> bool:
        """A client left. True: its request has ended; False: something of it is in flight, it ends with that."""
        sequence = self.sequences[index]
        replica = self.replicas[sequence.replica]
        if sequence.in_flight:
            sequence.cancelled = True
            replica.abort_running(sequence)
            return False
        if not sequence.running:
            replica.abort_waiting(sequence, now_ns)
        self._end(sequence, now_ns, "cancelled")
        return True

    def form(self, replica: int, now_ns: int) -> list[Item]:
        """Microbatches that leave a replica's router now, with their arrivals at visit 0."""
        items = self.replicas[replica].form(now_ns)
        if items and self._members is not None:
            in_flight = self.replicas[replica].in_flight
            for microbatch, members in islice(in_flight, len(in_flight) - len(items), None):
                self._members.formed(replica, microbatch.number, [s.request.index for s, _ in members])
        return items

    def in_system(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self.sequences)

    def _accept(self, replica: Replica, sequence: Sequence, rows: int, now_ns: int) -> None:
        """Drafts that turned out right become output, before the token that the model samples after them."""
        accepted = replica.verify(sequence, rows)
        sequence.generated += accepted
        replica.outstanding_tokens -= accepted
        for _ in range(accepted):
            self._observer.token(sequence.request.index, now_ns, sequence.last_ns)
            sequence.last_ns = now_ns

    def _end(self, sequence: Sequence, now_ns: int, outcome: Outcome) -> None:
        del self.sequences[sequence.request.index]
        if sequence.running:
            self.replicas[sequence.replica].finish(sequence, now_ns)
        if outcome == "finished":
            self.finished += 1
        else:
            self.failed += 1
        self._observer.request(sequence.record(outcome))
