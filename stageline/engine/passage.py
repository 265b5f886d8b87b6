"""The way of one request from a prefill replica to a decode replica (rule 11), as a table of states.

Each row says what may happen in a state, and what state follows. Whatever else happens there is an error, which tells
the request's story so far.

    state      event -> state
    asking     reserved -> prefill    cancelled -> over
    prefill    prefilled -> bound     reserved already: started -> moving    ended, cancelled -> over
    bound      queued -> waiting
    waiting    started -> moving      cancelled -> over
    moving     sent -> landing
    landing    landed -> decode       cancelled -> over
    decode     ended, cancelled -> over

`asking`: destination-first, it waits in the decode replica's queue. `prefill`: it waits or runs at the prefill replica.
`bound`: source-first, its prompt is done at this instant. `waiting`: it waits for the decode replica's KV, and its own
is pinned at the source. `moving`: until the source's KV is sent. `landing`: until it can be used. `decode`: it runs, or
waits to be prefilled again, at the decode replica. Who leaves while KV is under way ends at its landing.
"""

from collections.abc import Mapping
from typing import Literal

from stageline.engine.sequence import Sequence
from stageline.engine.types import HandOverRecord, Request
from stageline.errors import LawBroken

State = Literal["asking", "prefill", "bound", "waiting", "moving", "landing", "decode", "over"]
Event = Literal["reserved", "prefilled", "queued", "started", "sent", "landed", "ended", "cancelled"]

TABLE: Mapping[State, Mapping[Event, State]] = {
    "asking": {"reserved": "prefill", "cancelled": "over"},
    "prefill": {"prefilled": "bound", "started": "moving", "ended": "over", "cancelled": "over"},
    "bound": {"queued": "waiting"},
    "waiting": {"started": "moving", "cancelled": "over"},
    "moving": {"sent": "landing"},
    "landing": {"landed": "decode", "cancelled": "over"},
    "decode": {"ended": "over", "cancelled": "over"},
    "over": {},
}


class Passage:
    """One request, its sequences at both replicas, and when its KV moves. Times in ns, None: not yet."""

    __slots__ = (
        "booked_blocks", "decode", "end_ns", "landed_ns", "prefill", "request", "reserved_ns", "sent_bytes", "start_ns",
        "state", "story",
    )  # fmt: skip

    def __init__(self, request: Request, prefill: Sequence, state: State) -> None:
        self.request, self.prefill = request, prefill
        prefill.passage = self
        self.decode: Sequence | None = None
        self.state: State = state
        self.story: list[tuple[int, Event, State]] = []
        self.booked_blocks = 0  # of the source's KV, that transfers have been booked for
        self.sent_bytes = 0
        self.reserved_ns: int | None = None
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self.landed_ns: int | None = None

    def move(self, event: Event, now_ns: int) -> None:
        """Go on. Raises LawBroken, with the story so far, for what can't happen now."""
        after = TABLE[self.state].get(event)
        if after is None:
            told = ", ".join(f"{what} at {ns} ns: {state}" for ns, what, state in self.story)
            raise LawBroken(
                f"request {self.request.index}: {event!r} at {now_ns} ns can't happen while its KV is in state "
                f"{self.state!r}; so far: {told or 'nothing'}"
            )
        self.state = after
        self.story.append((now_ns, event, after))

    def record(self) -> HandOverRecord:
        """What is told of it."""
        return HandOverRecord(
            prefill_replica=self.prefill.replica, decode_replica=self.decode.replica if self.decode else None,
            reserved_ns=self.reserved_ns, start_ns=self.start_ns, end_ns=self.end_ns, landed_ns=self.landed_ns,
            sent_bytes=self.sent_bytes,
        )  # fmt: skip
