"""The router's side of the synchronisation: the conductor decides, this holds frames back and makes promises."""

from stageline.engine.conductor import Conductor
from stageline.engine.microbatch import Item
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError
from stageline.sync.frames import Ask, Frame
from stageline.sync.outlet import Outlet
from stageline.sync.window import FrameWindow


class RouterNode:
    """All replicas behind one router. `receive` and `asked` take what came, `poll` says what must go out."""

    def __init__(self, conductor: Conductor, window_frames: int = 4) -> None:
        self.conductor = conductor
        self.router = conductor.router
        route = self.router.route
        self.route = route
        replicas = range(len(self.router.replicas))
        self.windows = [FrameWindow(window_frames) for _ in replicas]
        self.outlets = [Outlet(0, speaks=route.revisits) for _ in replicas]
        self.settled = [False for _ in replicas]  # the last frame has come back: every ledger is empty
        self._held: list[list[Item]] = [[] for _ in replicas]
        self._expected = [0 for _ in replicas]
        self._wanted_ns = [0 for _ in replicas]
        self._closing = False

    @property
    def done(self) -> bool:
        """The run is over and every stage has applied its last releases."""
        return all(self.settled)

    def receive(self, replica: int, sequences: list[int], arrivals_ns: list[int], promise_ns: int, last: bool) -> None:
        """Completions from the return link, in order. Raises ProtocolError for one that was not expected."""
        conductor = self.conductor
        known = conductor.promised_ns[replica]
        for sequence, arrival in zip(sequences, arrivals_ns, strict=True):
            if sequence != self._expected[replica] or arrival < known:
                raise ProtocolError(
                    f"replica {replica}: microbatch {sequence} came back at {arrival} ns; expected was microbatch "
                    f"{self._expected[replica]}, not before {known} ns"
                )
            self._expected[replica] = sequence + 1
            known = arrival
        conductor.returned(replica, arrivals_ns)
        conductor.promised_ns[replica] = max(known, promise_ns)
        self.windows[replica].returned(len(arrivals_ns))
        self.settled[replica] = self.settled[replica] or last

    def asked(self, replica: int, time_ns: int) -> None:
        """The stage of visit 0 wants to know that nothing arrives before `time_ns`."""
        self.outlets[replica].asked(time_ns)

    def promised_ns(self, replica: int) -> int:
        """What the return link of a replica has promised so far."""
        return self.conductor.promised_ns[replica]

    def poll(self) -> tuple[list[tuple[int, Frame]], list[tuple[int, Ask]]]:
        """Decide all that is safe; returns (replica, frame for link 0) and (replica, ask for the return link)."""
        conductor = self.conductor
        conductor.advance()
        frames: list[tuple[int, Frame]] = []
        asks: list[tuple[int, Ask]] = []
        for r, dispatched in enumerate(conductor.dispatched):
            if dispatched:
                self._held[r] += dispatched
                conductor.dispatched[r] = []
            frame = self._flush(r)
            if frame is not None:
                frames.append((r, frame))
        for r, outlet in enumerate(self.outlets):
            if outlet.owes and outlet.speaks:
                self._ask_returns(r, asks)
        if conductor.done and not self._closing:
            self._closing = True
            for r, replica in enumerate(self.router.replicas):
                frames.append((r, Frame(0, [], NEVER, last=True, releases=replica.last_releases())))
        return frames, asks

    def _flush(self, r: int) -> Frame | None:
        """A frame if the window is open or a stage must know; promises never wait for the window."""
        held, outlet = self._held[r], self.outlets[r]
        if held:
            if self.windows[r].open or outlet.asked_ns > held[0].arrival_ns:
                self._held[r] = []
                self.windows[r].sent(len(held))
                return outlet.frame(held, self._promise(r))
            return outlet.frame([], held[0].arrival_ns)
        if not outlet.owes:
            return None
        return outlet.frame([], self._promise(r))

    def _promise(self, r: int) -> int:
        """Earliest arrival at visit 0 of a microbatch that has not been formed."""
        if not self.route.revisits:
            return 0
        replica = self.router.replicas[r]
        at = self.conductor.next_event_ns(r)
        if at >= NEVER:
            return NEVER
        return replica.link.promise_ns(max(at, replica.gate_ns) + replica.overhead_ns)

    def _ask_returns(self, r: int, asks: list[tuple[int, Ask]]) -> None:
        """Pass on what a stage asked: the router can tell only what the return links tell it."""
        conductor = self.conductor
        link = self.router.replicas[r].link
        ask_ns = self.outlets[r].asked_ns - link.latency_ns - link.min_serialisation_ns
        own_ns = conductor.own_event_ns
        for other in [r] if own_ns >= ask_ns and not conductor.reactive else range(len(self.outlets)):
            time_ns = min(ask_ns, own_ns + 1)
            if conductor.waits_for(other) and time_ns > max(conductor.promised_ns[other], self._wanted_ns[other]):
                self._wanted_ns[other] = time_ns
                asks.append((other, Ask(self.route.visits, time_ns)))
