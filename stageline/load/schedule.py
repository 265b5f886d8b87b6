"""What is sent when: a workload through rate steps, until an end, with a warm-up."""

import re

import msgspec

from stageline.engine.types import Cancellation, Request
from stageline.errors import BadInput
from stageline.load.ramp import Ramp
from stageline.units import parse_duration_ns
from stageline.workload import DescribedWorkload


class Warmup(msgspec.Struct, frozen=True):
    """Calls that are left out of all figures: the first `requests`, or those due before `until_ns`."""

    requests: int = 0
    until_ns: int = 0

    def covers(self, position: int, due_ns: int) -> bool:
        """Whether the request at this position of the run, due at `due_ns`, is warm-up."""
        return position < self.requests or due_ns < self.until_ns


NO_WARMUP = Warmup()
_MAX_DIGITS = 9


def parse_warmup(text: str) -> Warmup:
    """Parses `50` (requests) or `30s` (a time). Raises BadInput."""
    if re.fullmatch(r"[0-9]{1,200}", text):
        if len(text) > _MAX_DIGITS:
            raise BadInput("--warmup", text, "too large", f"give at most {_MAX_DIGITS} digits")
        return Warmup(requests=int(text))
    try:
        return Warmup(until_ns=parse_duration_ns(text, "--warmup"))
    except BadInput:
        reason = "neither a number of requests nor a time"
        raise BadInput("--warmup", text, reason, "write it like 50 or 30s") from None


class Due(msgspec.Struct, frozen=True):
    """One request of the schedule. `due_ns` is workload time: emulated, unless the run is in wall time."""

    request: Request
    due_ns: int
    step: int
    warmup: bool


class Schedule:
    """Takes requests from a workload in the order of their due times."""

    def __init__(
        self, workload: DescribedWorkload, ramp: Ramp, *, warmup: Warmup = NO_WARMUP, duration_ns: int | None = None
    ) -> None:
        self._workload, self._ramp = workload, ramp
        self._warmup, self._duration_ns = warmup, duration_ns
        self._head: tuple[int, int] | None = None
        self._over = False
        self._taken = 0
        self.reactive = workload.reactive

    def fraction(self, now_ns: int) -> float:
        """How much is done at workload time `now_ns`: of the requests, or of the time after which nothing is sent."""
        times = [end_ns for end_ns in (self._duration_ns, self._ramp.end_ns) if end_ns is not None]
        return max(self._workload.fraction(), now_ns / min(times) if times else 0.0)

    def next_due_ns(self) -> int | None:
        """When the next request is due. None: the schedule is over, or a closed loop waits for a reply."""
        if self._over:
            return None
        if self.reactive:  # rate steps do not apply, and the next arrival may change until it is taken
            arrival_ns = self._workload.next_arrival_ns()
            self._head = None if arrival_ns is None else (arrival_ns, 0)
        elif self._head is None:
            arrival_ns = self._workload.next_arrival_ns()
            self._head = None if arrival_ns is None else self._ramp.at(arrival_ns)
            self._over = self._head is None
        if self._head is not None and self._duration_ns is not None and self._head[0] >= self._duration_ns:
            # A call in flight may still make a request due before a rejected user's retry.
            self._over = not self.reactive
            return None
        return None if self._head is None else self._head[0]

    def take(self) -> Due | Cancellation:
        """Removes and returns the next request or cancellation; only when `next_due_ns()` is not None."""
        if self._head is None:
            raise LookupError("take() when nothing is due")
        (due_ns, step), self._head = self._head, None
        request = self._workload.take()
        if isinstance(request, Cancellation):
            return request
        position, self._taken = self._taken, self._taken + 1
        return Due(request, due_ns, step, self._warmup.covers(position, due_ns))

    def finished(self, index: int, now_ns: int) -> None:
        """A request has ended at workload time `now_ns`: a closed loop schedules its user's next one."""
        self._workload.finished(index, now_ns)
