"""Conservative event order: which of the router's events come next, and which are safe to process now.

Both engines use it: the in-process engine reports completions as it computes them, the cluster engine as frames
arrive. The bound of a replica is a lower bound on its next completion: the head of its return queue; else max(promise
of the return link, oldest microbatch in flight + shortest trip); NEVER with nothing in flight. An arrival at t waits
until no replica can complete at or before t. A formation at t waits for its own replica only, and a completion only for
its turn in its replica's order. A reactive workload is stricter: any completion may create an arrival for any replica,
so both wait for all replicas.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from stageline.engine.agenda import Agenda, Event, SoloAgenda
from stageline.engine.front_end import BehindFrontEnd
from stageline.engine.microbatch import Item
from stageline.engine.router import Router
from stageline.engine.types import NEVER, Cancellation, Request, Workload


class Forecast(Protocol):
    """Foresight: computes what the stages will do with the microbatches in flight, before their completions arrive."""

    def bound_ns(self, replica: int, until_ns: int) -> int:
        """Lower bound on the next completion, given that nothing more is dispatched before `until_ns`."""
        ...

    def dispatched(self, replica: int, items: list[Item]) -> None:
        """Microbatches leave for the stages."""
        ...

    def completed(self, replica: int, now_ns: int) -> None:
        """A completion is being processed. Raises LawBroken when it was predicted for another time."""
        ...


class Conductor:
    """Drives a router: `advance` processes every safe event, `dispatched` collects what leaves for the stages."""

    def __init__(self, router: Router, workload: Workload, forecast: Forecast | None = None) -> None:
        self.router = router
        self._forecast = forecast
        self.workload = BehindFrontEnd(workload, router.front_end_ns) if router.front_end_ns else workload
        replicas = len(router.replicas)
        self.returns: list[deque[int]] = [deque() for _ in range(replicas)]  # completion times, not yet processed
        self.promised_ns = [0] * replicas
        self.dispatched: list[list[Item]] = [[] for _ in range(replicas)]
        self.fed: list[int] = []  # replicas with something in `dispatched`
        self.next_form_ns = [NEVER] * replicas
        self.first_arrival_ns: int | None = None
        self.last_completion_ns = 0
        self.in_flight: list[deque[int]] = [deque() for _ in range(replicas)]  # arrivals at visit 0
        # Whether what happens at one replica may change what another one can do, so that none runs ahead of another.
        self.reactive = router.fleet.moves_kv or (workload.reactive and replicas > 1)
        self._trip_ns = [route.trip_ns for route in router.fleet.routes]  # shortest, by replica
        self._agenda = Agenda(replicas) if replicas > 1 else SoloAgenda()
        self.next_arrival_ns = NEVER  # lower bound on the next arrival
        self.arrival_known = False  # whether the workload can name what arrives then
        self._refresh_next_arrival()

    @property
    def done(self) -> bool:
        """No request is in the system, and none will arrive."""
        idle = self.next_arrival_ns >= NEVER and self.router.next_due_ns >= NEVER
        return idle and not self.router.sequences and not any(self.in_flight)

    def bound_ns(self, replica: int) -> int:
        """Lower bound on the next completion of this replica that has not been processed."""
        if self.returns[replica]:
            return self.returns[replica][0]
        flight = self.in_flight[replica]
        if not flight:
            return NEVER
        bound = max(self.promised_ns[replica], flight[0] + self._trip_ns[replica])
        if self._forecast is not None:
            until_ns = min(self.next_arrival_ns, self.next_form_ns[replica])
            bound = max(bound, self._forecast.bound_ns(replica, until_ns))
        return bound

    def returned(self, replica: int, arrivals_ns: Iterable[int]) -> None:
        """Microbatches are back, in the order in which they left."""
        self.returns[replica].extend(arrivals_ns)
        self._changed(replica)

    def promise(self, replica: int, promised_ns: int) -> None:
        """What comes on the return link from now on arrives no earlier."""
        if promised_ns > self.promised_ns[replica]:
            self.promised_ns[replica] = promised_ns
            self._changed(replica)

    def waits_for(self, replica: int) -> bool:
        """Whether a microbatch is in flight there whose completion is not known."""
        return bool(self.in_flight[replica]) and not self.returns[replica]

    @property
    def own_event_ns(self) -> int:
        """The earliest event that the router knows of: an arrival, a formation or a known completion."""
        heads = (q[0] for q in self.returns if q)
        return min(self.next_arrival_ns, self.router.next_due_ns, *self.next_form_ns, *heads)

    @property
    def known_event_ns(self) -> int:
        """The earliest arrival, or event of a replica whose next one is known."""
        known = self._agenda.known()
        own_ns = min(self.next_arrival_ns, self.router.next_due_ns)
        return own_ns if known is None else min(own_ns, known[0])

    def next_event_ns(self, replica: int) -> int:
        """The earliest time at which this replica may dispatch something."""
        if self.router.fleet.moves_kv:
            return min(self.own_event_ns, self._all_bounds_ns())
        bound = self._all_bounds_ns() if self.reactive else self.bound_ns(replica)
        return min(self.next_arrival_ns, self.next_form_ns[replica], bound)

    def _all_bounds_ns(self) -> int:
        return min(self.bound_ns(r) for r in range(len(self.returns)))

    def advance(self) -> None:
        """Process every event that is safe."""
        self._refresh_next_arrival()
        self.proceed()

    def proceed(self) -> None:
        """`advance` when the workload knows no more than it did after the last event."""
        while self._step() or self._do_due() or self._arrive():
            pass

    def _step(self) -> bool:
        """The next completion or formation, if safe, and what that replica can do after it."""
        agenda = self._agenda
        event = agenda.known()
        if event is None or event >= self._safe_before():
            return False
        agenda.take()
        now, is_form, r = event
        while True:
            if is_form:
                self._form(r, now)
            else:
                self._complete(r, now)
            event, known = self._event(r)
            if not known or event >= self._safe_before() or (self.reactive and agenda.precedes(event)):
                agenda.put(event, known)
                return True
            now, is_form, _ = event

    def _safe_before(self) -> Event:
        """Known events before this may be processed. Only a reactive workload waits for other replicas."""
        if self.reactive:
            return min(self.next_arrival_ns, self.router.next_due_ns, self._agenda.unknown_ns()), True, -1
        return self.next_arrival_ns, True, -1

    def _event(self, r: int) -> tuple[Event, bool]:
        """The replica's next event, and whether it is known or the bound on an unknown completion."""
        form, returns = self.next_form_ns[r], self.returns[r]
        if returns:
            now = returns[0]
            return ((form, True, r) if form < now else (now, False, r)), True
        if self.in_flight[r] and (bound := self.bound_ns(r)) <= form:
            return (bound, False, r), False
        return (form, True, r), True

    def _changed(self, r: int) -> None:
        """Put the replica's next event on the agenda: after whatever could have changed it."""
        self._agenda.put(*self._event(r))

    def _complete(self, r: int, now_ns: int) -> None:
        if self._forecast is not None:
            self._forecast.completed(r, now_ns)
        self.returns[r].popleft()
        self.in_flight[r].popleft()
        ended = self.router.complete(r, now_ns)
        self.last_completion_ns = max(self.last_completion_ns, now_ns)
        self.next_form_ns[r] = now_ns
        if ended:
            for index in ended:
                self.workload.finished(index, now_ns)
            self._refresh_next_arrival()
        self._form_touched(now_ns)

    def _form(self, r: int, now_ns: int) -> None:
        items = self.router.form(r, now_ns)
        if items:
            if not self.dispatched[r]:
                self.fed.append(r)
            self.dispatched[r] += items
            if self._forecast is not None:
                self._forecast.dispatched(r, items)
            self.in_flight[r].extend([i.arrival_ns for i in items])
        self.next_form_ns[r] = self.router.replicas[r].next_timer_ns(now_ns)
        self._form_touched(now_ns)

    def _do_due(self) -> bool:
        """What the router itself has to do next, if safe: after completions of that instant, before all else."""
        now = self.router.next_due_ns
        if now >= NEVER or now > self.next_arrival_ns or self._agenda.unknown_ns() <= now:
            return False
        known = self._agenda.known()
        if known is not None and known < (now, True):
            return False
        for index in self.router.do_due(now):
            self.last_completion_ns = max(self.last_completion_ns, now)
            self.workload.finished(index, now)
        self._form_touched(now)
        self._refresh_next_arrival()
        return True

    def _form_touched(self, now_ns: int) -> None:
        for r in self.router.take_touched():
            self._form_at(r, now_ns)

    def _arrive(self) -> bool:
        """The next arrival or cancellation, if safe."""
        now = self.next_arrival_ns
        if not self.arrival_known or self._agenda.unknown_ns() <= now or self.router.next_due_ns <= now:
            return False
        known = self._agenda.known()
        if known is not None and known < (now, True):
            return False
        event = self.workload.take()
        if isinstance(event, Cancellation):
            self._cancel(event.index, now)
        else:
            self._admit(event, now)
        self._refresh_next_arrival()
        return True

    def _admit(self, request: Request, now_ns: int) -> None:
        if self.first_arrival_ns is None:
            self.first_arrival_ns = self.last_completion_ns = now_ns
        if self.router.arrive(request):
            self._form_at(self.router.sequences[request.index].replica, now_ns)
            self._form_touched(now_ns)
        else:
            self.workload.finished(request.index, now_ns)

    def _cancel(self, index: int, now_ns: int) -> None:
        sequence = self.router.sequences.get(index)
        if sequence is not None:
            if self.router.cancel(index, now_ns):
                self.workload.finished(index, now_ns)
            self._form_at(sequence.replica, now_ns)
            self._form_touched(now_ns)

    def _form_at(self, replica: int, now_ns: int) -> None:
        self.next_form_ns[replica] = min(self.next_form_ns[replica], now_ns)
        self._changed(replica)

    def _refresh_next_arrival(self) -> None:
        """Ask the workload for its next arrival, or for a lower bound on it."""
        now = self.workload.next_arrival_ns()
        self.arrival_known = now is not None
        self.next_arrival_ns = self.workload.horizon_ns() if now is None else now
        if self._forecast is not None:  # it sees as far as the next arrival
            for r in range(len(self.returns)):
                self._changed(r)
