"""A stage server's side of conservative synchronisation (Chandy-Misra-Bryant link clocks).

A stage with one input serves what comes: FIFO is time order. A stage with several serves its earliest head only once
nothing earlier can come on the empty ones (equal times: the later visit first). Frames and asks go in and out as
values; the shell around it moves them.
"""

from collections import deque

from stageline.engine.microbatch import Item
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError
from stageline.sync.detour import detours
from stageline.sync.frames import Ask, Frame
from stageline.sync.inlet import Inlet
from stageline.sync.outlet import Outlet


class StageNode:
    """One stage of one replica with its links. `receive` and `asked` take what came, `poll` says what must go out.

    `gathers`: what is served late at a foreseen visit leaves with the next frame that comes back there. Otherwise every
    frame would leave in two parts, for its last microbatches wait for what the next one brings, and after a few such
    stages all frames were small. It waits only while such a frame is under way, and nothing but this stage and stages
    with one input can hold that up.
    """

    def __init__(self, route: Route, replica: int, index: int, seed: int, *, gathers: bool = True) -> None:
        self.route = route
        self.stage = Stage(route, index, replica, seed)
        self.visits = route.inputs[index]
        self.inlets = {v: Inlet(v) for v in self.visits}
        self.outlets = {v: Outlet(v + 1, speaks=route.revisits) for v in self.visits}
        self.links = {v: route.link(v + 1, replica, seed) for v in self.visits}
        self.finished = False
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
        self._gathers = gathers
        self._landing: set[int] = set()  # visits to which a frame has come back since the last poll
        self._next = {w: v for v, w in self._earlier.items()}
        self._last: Frame | None = None
        self._ending: set[int] = set()  # visits whose last frame has come and not yet gone on

    def receive(self, frame: Frame) -> None:
        """Take a frame from link `frame.link`. Raises ProtocolError for a link that does not end here."""
        inlet = self.inlets.get(frame.link)
        if inlet is None:
            raise ProtocolError(f"link {frame.link} does not end at stage {self.stage.index}")
        if frame.link in self._foreseen:
            self._land(frame)
        else:
            inlet.receive(frame.items, frame.promise_ns)
            self._come_back(frame)
        if frame.last:
            self._receive_last(frame)

    def asked(self, link: int, time_ns: int) -> None:
        """The receiver of outgoing `link` wants a promise up to `time_ns`. Raises ProtocolError for another link."""
        outlet = self.outlets.get(link - 1)
        if outlet is None:
            raise ProtocolError(f"link {link} does not begin at stage {self.stage.index}")
        outlet.asked(time_ns)

    def promised_ns(self, link: int) -> int:
        """What the sender of an incoming link has promised so far."""
        return self.inlets[link].promised_ns

    def poll(self) -> tuple[list[Frame], list[Ask]]:
        """Serve all that is safe; returns frames for the outgoing links and asks for the incoming ones."""
        asks: list[Ask] = []
        if len(self.visits) == 1:
            sent = {self.visits[0]: self._serve_all(self.visits[0])}
        else:
            sent = self._serve_safe(asks)
        frames = []
        for v in self.visits:
            frame = self._frame(v, sent.get(v, []), asks)
            if frame is not None:
                frames.append(frame)
            if v in self._ending and not self.inlets[v].queue and not self._unsent.get(v) and self._last is not None:
                self._ending.remove(v)
                frames.append(Frame(v + 1, [], NEVER, last=True, releases=self._last.releases))
        self._landing.clear()
        return frames, asks

    # -- serving

    def _serve_all(self, visit: int) -> list[Item]:
        """Everything that has come, in FIFO order."""
        queue = self.inlets[visit].queue
        if not queue:
            return []
        serve, link = self.stage.serve, self.links[visit]
        is_return = visit + 1 == self.route.visits
        out = []
        for arrival, prev_end, microbatch in [(i.arrival_ns, i.prev_end_ns, i.microbatch) for i in queue]:
            end = serve(visit, arrival, prev_end, microbatch)
            load = microbatch.totals
            tokens = load.sampled if is_return else load.decode_tokens + load.prefill_tokens
            out.append(Item(link.send(end, tokens, microbatch.number), end, microbatch))
        queue.clear()
        self._served[visit] += len(out)
        return out

    def _serve_safe(self, asks: list[Ask]) -> dict[int, list[Item]]:
        """Heads in time order for as long as no empty input can bring something earlier."""
        sent: dict[int, list[Item]] = {}
        while True:
            head = min(((i.queue[0].arrival_ns, -v) for v, i in self.inlets.items() if i.queue), default=None)
            if head is None or self._blocked(head, asks):
                return sent
            visit = -head[1]
            item = self.inlets[visit].queue.popleft()
            microbatch = item.microbatch
            end = self.stage.serve(visit, item.arrival_ns, item.prev_end_ns, microbatch)
            load = microbatch.totals
            tokens = load.sampled if visit + 1 == self.route.visits else load.tokens
            arrival = self.links[visit].send(end, tokens, microbatch.number)
            self._served[visit] += 1
            out = Item(arrival, end, microbatch)
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
        arrival, prev_end = detour.back(sent.arrival_ns, sent.prev_end_ns, sent.microbatch)
        back = Item(arrival, prev_end, sent.microbatch)
        self._foreseen[later].append(back)
        self.inlets[later].queue.append(back)
        self.inlets[later].received += 1

    def _land(self, frame: Frame) -> None:
        """What was foreseen has come: it must be what was foreseen. Raises ProtocolError."""
        foreseen = self._foreseen[frame.link]
        if len(frame.items) > len(foreseen):
            raise ProtocolError(f"link {frame.link} brings more microbatches than this stage has sent")
        for item in frame.items:
            expected = foreseen.popleft()
            if item != expected:
                raise ProtocolError(f"link {frame.link}: {item} came where {expected} was foreseen")
        self._landed[frame.link] += len(frame.items)
        if frame.items:
            self._landing.add(frame.link)
        inlet = self.inlets[frame.link]
        inlet.promised_ns = max(inlet.promised_ns, frame.promise_ns)

    def _come_back(self, frame: Frame) -> None:
        """What was away is back at a later visit. Raises ProtocolError for what never left."""
        earlier = self._earlier.get(frame.link)
        if earlier is None:
            return
        away = self._away[earlier]
        if len(frame.items) > len(away):
            raise ProtocolError(f"link {frame.link} brings more microbatches than visit {earlier} has sent")
        for _ in frame.items:
            away.popleft()

    def _blocked(self, head: tuple[int, int], asks: list[Ask]) -> bool:
        """Whether an empty input may still bring something that goes before the head; asks for what it must know."""
        ready, visit = head[0], -head[1]
        blocked = False
        for u, inlet in self.inlets.items():
            if inlet.queue:
                continue
            if u > visit and self._served[visit] == inlet.received:
                continue  # all that was served at `visit` is back for u: u waits for this very head
            if (self._bound(u), -u) <= head:
                blocked = True
                self._ask(u, ready + (u > visit), asks)
        return blocked

    def _bound(self, visit: int) -> int:
        """Nothing arrives on the empty input `visit` before this: its promise, or what this stage knows itself."""
        bound = self.inlets[visit].promised_ns
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
        queue = self.inlets[visit].queue
        return queue[0].arrival_ns if queue else self._bound(visit)

    def _promise(self, visit: int, ready_ns: int) -> int:
        """Earliest arrival at the far end of link visit + 1 of something that reaches this stage at `ready_ns`."""
        if ready_ns >= NEVER:
            return NEVER
        start = max(self.stage.free_ns, ready_ns)
        return self.links[visit].promise_ns(start + self.route.min_service_ns[visit])

    # -- what goes out

    def _frame(self, visit: int, items: list[Item], asks: list[Ask]) -> Frame | None:
        outlet = self.outlets[visit]
        unsent = self._unsent.get(visit)
        if unsent:
            if visit in self._landing or not (self._gathers and self._foreseen[visit]):
                items = [unsent.popleft() for _ in range(min(len(unsent), self._landed[visit]))]
                self._landed[visit] -= len(items)
            if unsent:  # served, but its activations have not come: the next frame begins with it
                return outlet.frame(items, unsent[0].arrival_ns)
        if not outlet.speaks:
            return Frame(visit + 1, items, 0) if items else None
        if not items and not outlet.owes:
            return None
        ready = self._next_ready(visit)
        frame = outlet.frame(items, self._promise(visit, ready))
        if outlet.owes and ready < NEVER and not self.inlets[visit].queue:
            self._ask(visit, outlet.asked_ns - self.route.step_ns[visit], asks)
        return frame

    def _ask(self, visit: int, time_ns: int, asks: list[Ask]) -> None:
        if self.inlets[visit].want(time_ns):
            asks.append(Ask(visit, time_ns))

    # -- the end of a run

    def _receive_last(self, frame: Frame) -> None:
        if frame.link == self.visits[0]:
            self._last = frame
        elif self._last is None:
            raise ProtocolError(f"link {frame.link}: the last frame came before it left visit {self.visits[0]}")
        if frame.link == self.stage.first_visit:
            self.stage.ledger.close(frame.releases)
        self._ending.add(frame.link)
        self.finished = frame.link == self.visits[-1]
