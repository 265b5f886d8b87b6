"""KV that is handed over from prefill to decode replicas (rule 11): who waits where, and what is due when."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from functools import partial
from itertools import zip_longest

from stageline.engine.binding import Binding, prefill_part
from stageline.engine.due import BIND, END, LAND, DueEvents, Order
from stageline.engine.fleet import HandOver
from stageline.engine.passage import Passage
from stageline.engine.ports import Ports, Transfer
from stageline.engine.replica import Replica
from stageline.engine.sequence import Sequence
from stageline.engine.types import Request
from stageline.errors import LawBroken


class HandOvers:
    """All requests between their prefill replica and their decode replica.

    `sequences` are the router's, by request index: of each the one that is queued or runs, the decode replica's last.
    """

    def __init__(
        self,
        settings: HandOver,
        replicas: Seq[Replica],
        binding: Binding,
        *,
        ports: Ports,
        sequences: dict[int, Sequence],
        due: DueEvents,
    ) -> None:
        self.settings, self.replicas, self.ports, self._binding, self._due = settings, replicas, ports, binding, due
        self.sequences = sequences
        self.acquires_cached = settings.transfer == "missing"
        self.counts_at_prefill = settings.first_token == "prefill"
        self.passages: dict[int, Passage] = {}  # by request index, until it decodes or has ended
        self.on_booked: Callable[[Transfer], None] | None = None  # who sees every transfer
        for replica in replicas:
            replica.incoming = self

    # -- on the way to the transfer

    def arrive(self, request: Request, replica: Replica) -> Sequence:
        """A request was bound to a prefill replica: it joins its queue, or first that of a decode replica."""
        part = Sequence(prefill_part(request), replica.index)
        if self.settings.order == "source-first":
            self.passages[request.index] = Passage(request, part, "prefill")
            replica.enqueue(part)
            return part
        passage = self.passages[request.index] = Passage(request, part, "asking")
        part.fixed_kv = self.settings.streamed
        return self._queue(passage)

    def admitted(self, sequence: Sequence, now_ns: int) -> None:
        """A decode replica holds KV for a hand-over from now on."""
        passage = self.passages[sequence.request.index]
        passage.reserved_ns = now_ns
        if passage.state == "waiting":
            self._start(passage, sequence, now_ns)
            return
        passage.move("reserved", now_ns)
        part = self.sequences[sequence.request.index] = passage.prefill
        self.replicas[part.replica].enqueue(part)
        self._due.touched.append(part.replica)

    def chunk_returned(self, passage: Passage, now_ns: int) -> None:
        """A chunk of the prompt is back, which is not the last: with `streamed` its blocks leave."""
        written_tokens = passage.chunk_ends.popleft()
        if not self.settings.streamed or passage.decode is None:
            return
        kv_bytes = self._kv_bytes(passage, passage.decode, written_tokens)
        if sum(kv_bytes) > passage.sent_bytes:
            passage.prefill.fixed = True
            self._book(passage, passage.decode, kv_bytes, now_ns)

    def prefilled(self, passage: Passage, now_ns: int, order: Order) -> None:
        """The prompt is done: its KV stays pinned until it is sent. `order`: replica, microbatch, member."""
        passage.chunk_ends.popleft()
        self.replicas[passage.prefill.replica].pin(passage.prefill, now_ns)
        if passage.decode is None:
            passage.move("prefilled", now_ns)
            self._due.add(now_ns, BIND, order, partial(self._bound, passage))
            return
        self._go_on(passage, passage.decode)
        if self.counts_at_prefill:
            self.replicas[passage.decode.replica].outstanding_tokens -= 1
        self._start(passage, passage.decode, now_ns)

    # -- what is due

    def _bound(self, passage: Passage, now_ns: int) -> None:
        passage.move("queued", now_ns)
        self._queue(passage)

    def _sent(self, passage: Passage, _now_ns: int) -> None:
        part = passage.prefill
        self.ports.sent(passage.booked[-passage.ends_due])
        passage.ends_due -= 1
        source = self.replicas[part.replica]
        if not passage.ends_due and part.request.index in source.pinned:
            source.unpin(part)
        self._due.touched.append(source.index)

    def _landed(self, passage: Passage, now_ns: int) -> Sequence | None:
        """Returns the sequence if its client has left, for the caller to end."""
        sequence = passage.decode
        if sequence is None:
            raise LawBroken(f"request {passage.request.index}: KV lands, and no decode replica holds it")
        passage.landings_due -= 1
        passage.booked.popleft()
        self._due.touched.append(sequence.replica)
        if passage.landings_due or passage.state == "prefill":
            return None
        if passage.has_ended:
            self.let_go(passage, now_ns)
            return None
        if sequence.cancelled:
            return sequence
        passage.move("landed", now_ns)
        del self.passages[passage.request.index]
        self.replicas[sequence.replica].land(sequence)
        return None

    # -- ends

    def abandon(self, passage: Passage, now_ns: int) -> bool:
        """Its client left. False when something of it is in flight or under way, so that it ends later."""
        part, decode = passage.prefill, passage.decode
        self._due.touched.append(part.replica)
        if decode is not None:
            self._due.touched.append(decode.replica)
            decode.cancelled = True
        if part.in_flight:
            part.cancelled = True
            self.replicas[part.replica].abort_running(part)
            return False
        if passage.landings_due and passage.state == "prefill":
            self._stop_prefill(passage, now_ns)
        return not passage.landings_due

    def returned_after_leaving(self, passage: Passage, now_ns: int) -> bool:
        """What was in flight of a request whose client has left is back. True when nothing is under way either."""
        if passage.landings_due:
            self._stop_prefill(passage, now_ns)
            return False
        return True

    def has_its_token(self, passage: Passage, now_ns: int) -> None:
        """A request ends with the token of its prefill; chunks that are under way still land."""
        if passage.landings_due:
            passage.has_ended = True
            self._stop_prefill(passage, now_ns)
        else:
            self.let_go(passage, now_ns)

    def let_go(self, passage: Passage, now_ns: int) -> None:
        """It ends before it decodes: nothing of it stays anywhere."""
        state, part, decode = passage.state, passage.prefill, passage.decode
        passage.move("gone", now_ns)
        del self.passages[passage.request.index]
        source = self.replicas[part.replica]
        if part.request.index in source.pinned:
            source.unpin(part)
            self._due.touched.append(source.index)
        elif state == "prefill":
            self._leave(source, part, now_ns)
        if decode is not None:
            self._leave(self.replicas[decode.replica], decode, now_ns)

    def _stop_prefill(self, passage: Passage, now_ns: int) -> None:
        """Nothing more is prefilled, but chunks are under way: the source keeps its KV until they are sent."""
        passage.move("left", now_ns)
        part = passage.prefill
        source = self.replicas[part.replica]
        source.pin(part, now_ns)
        if not passage.ends_due:
            source.unpin(part)
        self._due.touched.append(source.index)

    def _leave(self, replica: Replica, sequence: Sequence, now_ns: int) -> None:
        self._due.touched.append(replica.index)
        if sequence.running:
            replica.finish(sequence, now_ns)
        else:
            replica.abort_waiting(sequence, now_ns)

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
        self._due.touched.append(chosen.index)
        return sequence

    def _go_on(self, passage: Passage, sequence: Sequence) -> None:
        """The decode replica's sequence goes on where the prefill replica's is."""
        part = passage.prefill
        self.sequences[passage.request.index] = sequence
        sequence.generated = part.generated
        sequence.admitted_ns, sequence.first_ns, sequence.last_ns = part.admitted_ns, part.first_ns, part.last_ns
        sequence.preemptions, sequence.cached_tokens = part.preemptions, part.cached_tokens
        sequence.load = part.load

    def _start(self, passage: Passage, sequence: Sequence, now_ns: int) -> None:
        """All that has not been sent goes, and the states with it."""
        passage.move("started", now_ns)
        stages = self.replicas[passage.prefill.replica].route.plan.stages
        kv_bytes = self._kv_bytes(passage, sequence, passage.request.prompt_tokens)
        with_states = [size + s.state_bytes for size, s in zip(kv_bytes, stages, strict=True)]
        passage.landed_ns = self._book(passage, sequence, with_states, now_ns)

    def _kv_bytes(self, passage: Passage, sequence: Sequence, tokens: int) -> list[int]:
        """KV of the first `tokens` tokens by stage of the source, less what the destination has cached."""
        source = self.replicas[passage.prefill.replica]
        blocks = source.mirror.blocks_for(tokens)
        missing = blocks
        if self.acquires_cached:
            cached_tokens = self.replicas[sequence.replica].cached_tokens_of(sequence)
            missing = max(0, blocks - cached_tokens // source.mirror.block_tokens)
        return [missing * s.kv_block_bytes + s.window_bytes(blocks) for s in source.route.plan.stages]

    def _book(self, passage: Passage, sequence: Sequence, kv_bytes: list[int], now_ns: int) -> int:
        """Take both ports for what of `kv_bytes`, by stage, was not booked before; returns when it lands."""
        source, before = passage.prefill.replica, passage.sent_stage_bytes
        size = sum(kv_bytes) - passage.sent_bytes
        booked = self.ports.book(source, sequence.replica, size, now_ns)
        passage.booked.append(booked)
        passage.sent_stage_bytes = kv_bytes
        if self.on_booked is not None:
            parts = tuple(now - past for now, past in zip_longest(kv_bytes, before, fillvalue=0))
            self.on_booked(Transfer(passage.request.index, source, sequence.replica, parts))
        passage.ends_due += 1
        passage.landings_due += 1
        if passage.start_ns is None:
            passage.start_ns = booked.start_ns
        passage.end_ns = booked.end_ns
        order = self._due.book()
        self._due.add(booked.end_ns, END, order, partial(self._sent, passage))
        self._due.add(booked.landed_ns, LAND, order, partial(self._landed, passage))
        return booked.landed_ns
