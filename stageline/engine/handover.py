"""KV that is handed over from prefill to decode replicas (rule 11): who waits where, the ports, what is due when."""

import heapq
from collections.abc import Sequence as Seq

from stageline.engine.binding import Binding, prefill_part
from stageline.engine.passage import Event, Passage
from stageline.engine.replica import Replica
from stageline.engine.sequence import Sequence
from stageline.engine.served import ServedFleet
from stageline.engine.types import NEVER, Request
from stageline.errors import LawBroken

BIND, END, LAND = range(3)  # the order of what is due at one instant
Due = tuple[int, int, tuple[int, int, int], Passage]  # time, kind, who goes first among equals


class Ports:
    """One egress and one ingress port per replica; each serves one transfer after the other."""

    def __init__(self, fleet: ServedFleet, bytes_per_s: int, latency_ns: int) -> None:
        self._egress = [pool.egress_bytes_per_s or bytes_per_s for pool in fleet.pool_of]
        self._ingress = [pool.ingress_bytes_per_s or bytes_per_s for pool in fleet.pool_of]
        self._egress_free_ns = [0] * fleet.replicas
        self._ingress_free_ns = [0] * fleet.replicas
        self._latency_ns = latency_ns
        self.busy_ns = [[0, 0] for _ in range(fleet.replicas)]  # egress and ingress, by replica

    def book(self, source: int, destination: int, size: int, now_ns: int) -> tuple[int, int, int]:
        """Start, end and landing of a transfer of `size` bytes that may start now."""
        start = max(now_ns, self._egress_free_ns[source], self._ingress_free_ns[destination])
        bytes_per_s = min(self._egress[source], self._ingress[destination])
        took = max(1, -(-size * 10**9 // bytes_per_s))
        end = start + took
        self._egress_free_ns[source] = self._ingress_free_ns[destination] = end
        self.busy_ns[source][0] += took
        self.busy_ns[destination][1] += took
        return start, end, end + self._latency_ns


class HandOvers:
    """All requests between their prefill replica and their decode replica."""

    def __init__(
        self, fleet: ServedFleet, replicas: Seq[Replica], binding: Binding, sequences: dict[int, Sequence]
    ) -> None:
        """`sequences`: the router's, by request index; at any time one that a cancellation would form at."""
        settings = fleet.hand_over
        assert settings is not None
        self.settings = settings
        self.acquires_cached = settings.transfer == "missing"
        self.replicas, self.sequences, self._binding = replicas, sequences, binding
        self.ports = Ports(fleet, settings.bytes_per_s, settings.latency_ns)
        self.passages: dict[int, Passage] = {}  # by request index, until it decodes or has ended
        self.touched: list[int] = []  # replicas that may form because of what happened at another one
        self._due: list[Due] = []
        self._booked = 0
        for replica in replicas:
            replica.incoming = self

    @property
    def next_ns(self) -> int:
        """When the next of these events is due."""
        return self._due[0][0] if self._due else NEVER

    @property
    def counts_at_prefill(self) -> bool:
        """Whether the first token counts where the prompt is prefilled."""
        return self.settings.first_token == "prefill"

    # -- requests

    def arrive(self, request: Request, replica: Replica) -> Sequence:
        """A request was bound to a prefill replica: it joins its queue, or first that of a decode replica."""
        part = Sequence(prefill_part(request), replica.index)
        if self.settings.order == "source-first":
            self.passages[request.index] = Passage(request, part, "prefill")
            replica.enqueue(part)
            return part
        passage = self.passages[request.index] = Passage(request, part, "asking")
        return self._queue(passage)

    def admitted(self, sequence: Sequence, now_ns: int) -> None:
        """A decode replica has room for a hand-over and holds it."""
        passage = self.passages[sequence.request.index]
        passage.reserved_ns = now_ns
        if passage.state == "waiting":
            self._start(passage, sequence, now_ns)
            return
        passage.move("reserved", now_ns)
        self.sequences[sequence.request.index] = passage.prefill
        self.replicas[passage.prefill.replica].enqueue(passage.prefill)
        self.touched.append(passage.prefill.replica)

    def prefilled(self, passage: Passage, now_ns: int, order: tuple[int, int, int]) -> None:
        """The prompt is done: its KV stays pinned until it is sent. `order`: replica, microbatch, member."""
        self.replicas[passage.prefill.replica].pin(passage.prefill, now_ns)
        if passage.decode is None:
            passage.move("prefilled", now_ns)
            heapq.heappush(self._due, (now_ns, BIND, order, passage))
            return
        self._go_on(passage, passage.decode)
        if self.counts_at_prefill:
            self.replicas[passage.decode.replica].outstanding_tokens -= 1
        self._start(passage, passage.decode, now_ns)

    def abandon(self, passage: Passage, now_ns: int) -> bool:
        """Its client left. False when something of it is in flight, so that it ends later."""
        part, decode = passage.prefill, passage.decode
        if decode is not None and passage.state in ("moving", "landing"):
            decode.cancelled = True
            return False
        if part.in_flight:
            part.cancelled = True
            self.replicas[part.replica].abort_running(part)
            return False
        return True

    def let_go(self, passage: Passage, event: Event, now_ns: int) -> None:
        """It ends before it decodes: nothing of it stays anywhere."""
        state, part, decode = passage.state, passage.prefill, passage.decode
        passage.move(event, now_ns)
        del self.passages[passage.request.index]
        source = self.replicas[part.replica]
        if state == "prefill":
            self._leave(source, part, now_ns)
        elif state == "waiting":
            source.unpin(part)
            self.touched.append(source.index)
        if decode is not None:
            self._leave(self.replicas[decode.replica], decode, now_ns)

    def fire(self) -> Passage | None:
        """Do what is due next; returns who has landed after its client had left, for the caller to end."""
        now_ns, kind, _, passage = heapq.heappop(self._due)
        part = passage.prefill
        if kind == BIND:
            passage.move("queued", now_ns)
            self._queue(passage)
        elif kind == END:
            passage.move("sent", now_ns)
            self.replicas[part.replica].unpin(part)
            self.touched.append(part.replica)
        else:
            return self._land(passage, passage.decode, now_ns)
        return None

    # -- inside

    def _queue(self, passage: Passage) -> Sequence:
        """It joins the queue of a decode replica."""
        chosen = self._binding.choose_decode(passage.request)
        sequence = passage.decode = self.sequences[passage.request.index] = Sequence(passage.request, chosen.index)
        sequence.passage = passage
        sequence.incoming = True
        sequence.todo_tokens = 0
        sequence.written_tokens = passage.request.prompt_tokens - (not self.counts_at_prefill)
        if passage.state == "waiting":
            self._go_on(passage, sequence)
        chosen.enqueue(sequence)
        self.touched.append(chosen.index)
        return sequence

    def _go_on(self, passage: Passage, sequence: Sequence) -> None:
        """The decode replica's sequence goes on where the prefill replica's is."""
        part = passage.prefill
        self.sequences[passage.request.index] = sequence
        sequence.generated = part.generated
        sequence.admitted_ns, sequence.first_ns, sequence.last_ns = part.admitted_ns, part.first_ns, part.last_ns
        sequence.preemptions, sequence.cached_tokens = part.preemptions, part.cached_tokens

    def _start(self, passage: Passage, sequence: Sequence, now_ns: int) -> None:
        source = self.replicas[passage.prefill.replica]
        passage.move("started", now_ns)
        size = passage.sent_bytes = self._bytes(source, passage.prefill, sequence)
        passage.start_ns, passage.end_ns, landed_ns = self.ports.book(source.index, sequence.replica, size, now_ns)
        self._booked += 1
        heapq.heappush(self._due, (passage.end_ns, END, (source.index, self._booked, 0), passage))
        heapq.heappush(self._due, (landed_ns, LAND, (sequence.replica, self._booked, 0), passage))

    def _bytes(self, source: Replica, part: Sequence, sequence: Sequence) -> int:
        """What is sent: the blocks of the prompt and the states, of all stages of the source."""
        blocks = source.mirror.blocks_for(part.written_tokens)
        if self.settings.transfer == "missing":
            blocks -= self.replicas[sequence.replica].cached_tokens_of(sequence) // source.mirror.block_tokens
        return sum(stage.kv_bytes(blocks, 1) for stage in source.route.plan.stages)

    def _land(self, passage: Passage, sequence: Sequence | None, now_ns: int) -> Passage | None:
        if sequence is None:
            raise LawBroken(f"request {passage.request.index}: its KV lands, and no decode replica holds it")
        self.touched.append(sequence.replica)
        if sequence.cancelled:
            return passage
        passage.move("landed", now_ns)
        passage.landed_ns = now_ns
        del self.passages[passage.request.index]
        self.replicas[sequence.replica].land(sequence)
        return None

    def _leave(self, replica: Replica, sequence: Sequence, now_ns: int) -> None:
        self.touched.append(replica.index)
        if sequence.running:
            replica.finish(sequence, now_ns)
        else:
            replica.abort_waiting(sequence, now_ns)
