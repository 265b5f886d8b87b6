"""A stage server's side of conservative synchronisation (Chandy-Misra-Bryant link clocks).

A stage with one input serves what comes: FIFO is time order. A stage with several serves its earliest head only once
nothing earlier can come on the empty ones (equal times: the later visit first). Frames and asks go in and out as
values; the shell around the machine moves them.
"""

from collections import deque

from stageline.engine.microbatch import Item
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError
from stageline.sync.asking import Asking
from stageline.sync.detour import detours
from stageline.sync.frames import Frame
from stageline.sync.link_ends import ReceivingEnd, SendingEnd
from stageline.sync.machine import Asks, Frames
from stageline.sync.realtime import LiveClock, Pacing


class StageMachine:
    """One stage of one replica with its links; see `stageline.sync.machine.Machine`. Keys are link numbers.

    With a `clock` frames leave in wall time. Without one, what is served late at a foreseen visit is gathered: it
    leaves with the next frame that comes back there. Otherwise every frame would leave in two parts, for its last
    microbatches wait for what the next one brings, and after a few such stages all frames were small. It waits only
    while such a frame is under way, and nothing but this stage and stages with one input can hold that up.
    """

    def __init__(self, route: Route, replica: int, index: int, seed: int, *, clock: LiveClock | None = None) -> None:
        self.route = route
        self.stage = Stage(route, index, replica, seed)
        self.visits = route.inputs[index]
        self.next_timer_ns = NEVER
        self.done = False
        self._promises = route.revisits  # without revisits FIFO is order enough, and no promise is ever needed
        self._receivers = {v: ReceivingEnd(v) for v in self.visits}
        self._senders = {v: SendingEnd() for v in self.visits}
        self._links = {v: route.link(v + 1, replica, seed) for v in self.visits}
        self._clock = clock
        self._pacing = Pacing(clock, {v + 1: self._links[v].latency_ns for v in self.visits}) if clock else None
        self._asking = Asking(lambda v: self._receivers[v].promised_ns) if route.revisits else None
        self._news = False  # something has come since the last poll
        self._served = dict.fromkeys(self.visits, 0)
        # What visit v sent and has not come back for the next visit of this stage: arrivals at link v + 1.
        self._away: dict[int, deque[int]] = {v: deque() for v in self.visits}
        self._earlier = dict(zip(self.visits[1:], self.visits, strict=False))
        self._path_ns = {v: sum(route.step_ns[w + 1 : v]) for v, w in self._earlier.items()}
        # Visits whose arrivals are foreseen: what was foreseen and has not come, how much has come, what waits for it.
        self._detours = detours(route, self.visits, replica, seed)
        self._foreseen: dict[int, deque[Item]] = {v: deque() for v in self._detours}
        self._landed = dict.fromkeys(self._detours, 0)
        self._unsent: dict[int, deque[Item]] = {v: deque() for v in self._detours}
        self._landing: set[int] = set()  # visits to which a frame has come back since the last poll
        self._next = {w: v for v, w in self._earlier.items()}
        self._last: Frame | None = None
        self._announced: tuple[int, ...] = ()  # owners whose KV the next microbatch will give back
        self._passing_on: list[tuple[int, Frame]] = []  # the frames that say so
        self._ending: set[int] = set()  # visits whose last frame has come and not yet gone on

    def receive(self, key: int, frame: Frame) -> None:
        """See Machine."""
        receiver = self._receivers.get(key)
        if receiver is None:
            raise ProtocolError(f"link {key} does not end at stage {self.stage.index}")
        self._news = True
        if self._clock is not None and frame.slip_ns > self._clock.slip_ns:
            self._clock.slip_to(frame.slip_ns)
        if not self._promises:
            receiver.queue.extend(frame.items)
        elif key in self._foreseen:
            self._land(key, frame)
        else:
            receiver.receive(frame.items, frame.promise_ns)
            if key in self._earlier:
                self._come_back(key, frame)
        if frame.last:
            self._receive_last(key, frame)
        elif frame.releases:
            self._announced = frame.releases
            if key + 1 < self.route.visits:
                self._passing_on.append((key + 1, Frame([], 0, releases=frame.releases)))

    @property
    def kv_used_bytes(self) -> int:
        """What requests hold. The ledger falls with the next microbatch only; before it comes, nothing can need it."""
        return self.stage.ledger.used_bytes - self.stage.ledger.held_bytes(self._announced)

    def asked(self, key: int, time_ns: int) -> None:
        """See Machine."""
        sender = self._senders.get(key - 1)
        if sender is None:
            raise ProtocolError(f"link {key} does not begin at stage {self.stage.index}")
        self._news = True
        sender.asked(time_ns)
        if self._pacing is not None:
            self._pacing.asked(key, time_ns)

    def poll(self, now_ns: int) -> tuple[Frames, Asks]:
        """See Machine. What a stage serves follows from what has come, never from `now_ns`."""
        frames: Frames = []
        asks: Asks = []
        news, self._news = self._news, False
        if news:
            frames, self._passing_on = self._passing_on, []
            self._serve(frames, asks)
        timer_ns = NEVER
        if self._pacing is not None:
            frames = self._pacing.poll(now_ns, frames)
            timer_ns = self._pacing.next_timer_ns
        if self._asking is not None:
            asks = self._asking.poll(now_ns, asks, news=news)
            timer_ns = min(timer_ns, self._asking.next_timer_ns)
        self.next_timer_ns = timer_ns
        return frames, asks

    # -- serving

    def _serve(self, frames: Frames, asks: Asks) -> None:
        """Serve all that is safe; adds what it gives to send and to ask."""
        sent = self._serve_all() if len(self.visits) == 1 else self._serve_safe(asks)
        for v in self.visits:
            items = sent.get(v, [])
            if self._promises:
                frame = self._frame(v, items, asks)
                if frame is not None:
                    frames.append((v + 1, frame))
            elif items:
                frames.append((v + 1, Frame(items, 0)))
            if v in self._ending and not self._receivers[v].queue and not self._unsent.get(v) and self._last:
                self._ending.remove(v)
                frames.append((v + 1, Frame([], NEVER, last=True, releases=self._last.releases)))
        self._landing.clear()

    def _serve_all(self) -> dict[int, list[Item]]:
        """Everything that has come for the only visit, in FIFO order."""
        (visit,) = self.visits
        queue = self._receivers[visit].queue
        serve, send = self.stage.serve, self._links[visit].send
        is_return = visit + 1 == self.route.visits
        out = []
        for item in queue:
            microbatch = item.microbatch
            trail = serve(visit, item)
            totals = microbatch.totals
            tokens = totals.sampled if is_return else totals.decode_tokens + totals.prefill_tokens
            out.append(Item(send(trail.prev_end_ns, tokens, microbatch.number), trail, microbatch))
        queue.clear()
        self._served[visit] += len(out)
        return {visit: out}

    def _serve_safe(self, asks: Asks) -> dict[int, list[Item]]:
        """Heads in time order for as long as no empty input can bring something earlier."""
        sent: dict[int, list[Item]] = {}
        while True:
            head = min(((r.queue[0].arrival_ns, -v) for v, r in self._receivers.items() if r.queue), default=None)
            if head is None or self._blocked(head, asks):
                return sent
            visit = -head[1]
            item = self._receivers[visit].queue.popleft()
            microbatch = item.microbatch
            trail = self.stage.serve(visit, item)
            totals = microbatch.totals
            tokens = totals.sampled if visit + 1 == self.route.visits else totals.tokens
            arrival = self._links[visit].send(trail.prev_end_ns, tokens, microbatch.number)
            self._served[visit] += 1
            out = Item(arrival, trail, microbatch)
            if visit != self.visits[-1]:
                self._foresee(visit, out)
            if visit in self._unsent:
                self._unsent[visit].append(out)
            else:
                sent.setdefault(visit, []).append(out)

    def _foresee(self, visit: int, sent: Item) -> None:
        """Put a microbatch where it will be back, if that is known already; else remember that it is away."""
        later = self._next[visit]
        detour = self._detours.get(later)
        if detour is None:
            self._away[visit].append(sent.arrival_ns)
            return
        back = detour.back(sent)
        self._foreseen[later].append(back)
        self._receivers[later].queue.append(back)
        self._receivers[later].received += 1

    def _land(self, link: int, frame: Frame) -> None:
        """What was foreseen has come: it must be what was foreseen. Raises ProtocolError."""
        foreseen = self._foreseen[link]
        if len(frame.items) > len(foreseen):
            raise ProtocolError(f"link {link} brings more microbatches than this stage has sent")
        for item in frame.items:
            expected = foreseen.popleft()
            if item != expected:
                raise ProtocolError(f"link {link}: {item} came where {expected} was foreseen")
        self._landed[link] += len(frame.items)
        if frame.items:
            self._landing.add(link)
        receiver = self._receivers[link]
        receiver.promised_ns = max(receiver.promised_ns, frame.promise_ns)

    def _come_back(self, link: int, frame: Frame) -> None:
        """What was away is back at a later visit. Raises ProtocolError for what never left."""
        earlier = self._earlier[link]
        away = self._away[earlier]
        if len(frame.items) > len(away):
            raise ProtocolError(f"link {link} brings more microbatches than visit {earlier} has sent")
        for _ in frame.items:
            away.popleft()

    def _blocked(self, head: tuple[int, int], asks: Asks) -> bool:
        """Whether an empty input may still bring something that goes before the head; asks for what it must know."""
        ready, visit = head[0], -head[1]
        blocked = False
        for u, receiver in self._receivers.items():
            if receiver.queue:
                continue
            if u > visit and self._served[visit] == receiver.received:
                continue  # all that was served at `visit` is back for u: u waits for this very head
            if (self._bound(u), -u) <= head:
                blocked = True
                self._need(u, ready + (u > visit), asks)
        return blocked

    def _bound(self, visit: int) -> int:
        """Nothing arrives on the empty input `visit` before this: its promise, or what this stage knows itself."""
        bound = self._receivers[visit].promised_ns
        earlier = self._earlier.get(visit)
        if earlier is None:
            return bound
        if self._away[earlier]:
            return max(bound, self._away[earlier][0] + self._path_ns[visit])
        ready = self._next_ready(earlier)
        if ready >= NEVER:
            return bound
        return max(bound, self._promise(earlier, ready) + self._path_ns[visit])

    def _next_ready(self, visit: int) -> int:
        queue = self._receivers[visit].queue
        return queue[0].arrival_ns if queue else self._bound(visit)

    def _promise(self, visit: int, ready_ns: int) -> int:
        """Earliest arrival at the far end of link visit + 1 of what reaches this stage at `ready_ns`: the lookahead."""
        if ready_ns >= NEVER:
            return NEVER
        start = max(self.stage.free_ns, ready_ns)
        return self._links[visit].promise_ns(start + self.route.min_service_ns[visit])

    # -- what goes out

    def _frame(self, visit: int, items: list[Item], asks: Asks) -> Frame | None:
        sender = self._senders[visit]
        unsent = self._unsent.get(visit)
        if unsent:
            if visit in self._landing or self._clock is not None or not self._foreseen[visit]:
                items = [unsent.popleft() for _ in range(min(len(unsent), self._landed[visit]))]
                self._landed[visit] -= len(items)
            if unsent:  # served, but its activations have not come: the next frame begins with it
                return sender.frame(items, unsent[0].arrival_ns)
        if not items and not sender.unanswered:
            return None
        ready = self._next_ready(visit)
        frame = sender.frame(items, self._promise(visit, ready))
        if sender.unanswered and ready < NEVER and not self._receivers[visit].queue:
            self._need(visit, sender.asked_ns - self.route.step_ns[visit], asks)
        return frame

    def _need(self, visit: int, time_ns: int, asks: Asks) -> None:
        if self._receivers[visit].ask(time_ns):
            asks.append((visit, time_ns))

    # -- the end of a run

    def _receive_last(self, link: int, frame: Frame) -> None:
        if link == self.visits[0]:
            self._last = frame
        elif self._last is None:
            raise ProtocolError(f"link {link}: the last frame came before it left visit {self.visits[0]}")
        if link == self.stage.first_visit:
            self.stage.ledger.close(frame.releases)
        self._ending.add(link)
        self.done = link == self.visits[-1]
