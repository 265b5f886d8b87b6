"""The router's rules (rules 5, 6 and 9): bind requests, count tokens, form microbatches. Time is an argument."""

from collections.abc import Callable

from stageline.engine.binding import Binding, Refusal
from stageline.engine.due import DueEvents
from stageline.engine.engine_replica import make_replica
from stageline.engine.handover import HandOvers
from stageline.engine.loading import Loads
from stageline.engine.microbatch import Item
from stageline.engine.ports import Ports, Transfer
from stageline.engine.replica import Replica
from stageline.engine.sequence import Sequence, refused
from stageline.engine.served import ServedFleet
from stageline.engine.types import MemberObserver, Observer, Outcome, Request


class Router:
    """Order of calls at one instant: `complete` (by replica), `arrive` (file order), then `form` once per replica."""

    def __init__(
        self, fleet: ServedFleet, seed: int, observer: Observer, members: MemberObserver | None = None
    ) -> None:
        self.fleet = fleet
        self.replicas = [make_replica(p.route, i, p.scheduling, seed) for i, p in enumerate(fleet.pool_of)]
        for replica, pool in zip(self.replicas, fleet.pool_of, strict=True):
            replica.prefills = pool.role == "prefill"
        self.front_end_ns = fleet.routing.front_end_ns
        self._binding = Binding(fleet, self.replicas)
        self._observer, self._members = observer, members
        self.sequences: dict[int, Sequence] = {}  # arrived and not ended, by request index
        self._due = DueEvents()
        self.hand_overs: HandOvers | None = None  # None: no such fleet
        if fleet.hand_over is not None:
            ports = Ports([pool.port for pool in fleet.pool_of])
            self.hand_overs = HandOvers(
                fleet.hand_over, self.replicas, self._binding, ports=ports, sequences=self.sequences, due=self._due
            )
        self.loads = Loads(fleet, self.replicas, self._due) if fleet.tiered else None
        self.arrived = 0
        self.finished = 0
        self.failed = 0  # refused, cancelled or failed

    def on_transfer(self, booked: Callable[[Transfer], None]) -> None:
        """Have `booked` called with every transfer of KV when it is booked."""
        if self.hand_overs is not None:
            self.hand_overs.on_booked = booked

    def arrive(self, request: Request) -> bool:
        """Bind a request to a replica; False when it is refused."""
        self.arrived += 1
        self._due.now_ns = request.arrival_ns + self.front_end_ns
        if self.refusal(request) is not None:
            self.failed += 1
            self._observer.request(refused(request))
            return False
        replica = self._binding.choose(request)
        if self.hand_overs is not None and replica.prefills and self._binding.hands_over(request):
            self.sequences[request.index] = self.hand_overs.arrive(request, replica)
            return True
        sequence = self.sequences[request.index] = Sequence(request, replica.index)
        replica.enqueue(sequence)
        return True

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request can never be served; None when it can."""
        return self._binding.refusal(request)

    def complete(self, replica: int, now_ns: int) -> list[int]:
        """A replica's oldest microbatch in flight has completed. Returns the requests that ended with it."""
        rep = self.replicas[replica]
        self._due.now_ns = now_ns
        if rep.prefills and self.hand_overs is not None:
            return self._complete_prefill(rep, self.hand_overs, now_ns)
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

    def _complete_prefill(self, rep: Replica, hand_overs: HandOvers, now_ns: int) -> list[int]:
        """As `complete`, at a prefill replica: whose prompt is done, has its only token or is handed over."""
        number, ended = rep.in_flight[0][0].microbatch.number, []
        for member, (sequence, rows) in enumerate(rep.complete(now_ns)):
            index, passage = sequence.request.index, sequence.passage
            if sequence.cancelled:
                if sequence.in_flight:
                    continue
                if passage is None or hand_overs.returned_after_leaving(passage, now_ns):
                    self._end(sequence, now_ns, "cancelled")
                    ended.append(index)
                continue
            if not rows:
                if passage is not None:
                    hand_overs.chunk_returned(passage, now_ns)
                continue
            if passage is None or hand_overs.counts_at_prefill:
                sequence.generated = 1
                rep.outstanding_tokens -= 1
                self._observer.token(index, now_ns, None)
                sequence.first_ns = sequence.last_ns = now_ns
                if passage is None or passage.request.output_tokens == 1:
                    self._end(sequence, now_ns, "finished")
                    ended.append(index)
                    continue
            hand_overs.prefilled(passage, now_ns, (rep.index, number, member))
        return ended

    @property
    def next_due_ns(self) -> int:
        """When the router itself has something to do: bindings and ends of hand-overs, landings."""
        return self._due.next_ns

    def do_due(self, now_ns: int) -> list[int]:
        """Do the next of it. Returns the requests that ended with it."""
        self._due.now_ns = now_ns
        left = self._due.fire()
        if left is None or not self._has_left(left, now_ns):
            return []
        self._end(self.sequences[left.request.index], now_ns, "cancelled")
        return [left.request.index]

    def take_touched(self) -> list[int]:
        """Replicas that may form now because of what has happened elsewhere."""
        if not self._due.touched:
            return []
        touched, self._due.touched = self._due.touched, []
        return touched

    def cancel(self, index: int, now_ns: int) -> bool:
        """A client left. True when its request has ended; False when it will end with its microbatches in flight."""
        sequence = self.sequences[index]
        if self.hand_overs is not None and (passage := self.hand_overs.passages.get(index)) is not None:
            if not self.hand_overs.abandon(passage, now_ns):
                return False
            self._end(sequence, now_ns, "cancelled")
            return True
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
        """Form every microbatch of a replica that may leave now, with its arrival at visit 0."""
        self._due.now_ns = now_ns
        formed = self.replicas[replica].form(now_ns)
        if self._members is not None:
            for item, members in formed:
                self._members.formed(replica, item.microbatch.number, [s.request.index for s, _ in members])
        return [item for item, _ in formed]

    def in_system(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self.sequences)

    def _has_left(self, sequence: Sequence, now_ns: int) -> bool:
        """Whether a request ends now that something of it has landed after its client had left."""
        passage = self.hand_overs.passages.get(sequence.request.index) if self.hand_overs is not None else None
        if self.hand_overs is None or passage is None or sequence is not passage.prefill:
            return True
        return self.hand_overs.returned_after_leaving(passage, now_ns)

    def _accept(self, replica: Replica, sequence: Sequence, rows: int, now_ns: int) -> None:
        """Accepted drafts become output, before the token that the model samples after them."""
        accepted = replica.verify(sequence, rows)
        sequence.generated += accepted
        replica.outstanding_tokens -= accepted
        for _ in range(accepted):
            self._observer.token(sequence.request.index, now_ns, sequence.last_ns)
            sequence.last_ns = now_ns

    def _end(self, sequence: Sequence, now_ns: int, outcome: Outcome) -> None:
        del self.sequences[sequence.request.index]
        if self.hand_overs is not None and (passage := self.hand_overs.passages.get(sequence.request.index)):
            if outcome == "finished":
                self.hand_overs.has_its_token(passage, now_ns)
            else:
                self.hand_overs.let_go(passage, now_ns)
        elif sequence.running:
            self.replicas[sequence.replica].finish(sequence, now_ns)
        if outcome == "finished":
            self.finished += 1
        else:
            self.failed += 1
        self._observer.request(sequence.record(outcome))
