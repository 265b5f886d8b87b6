"""The way of one request from a prefill replica to a decode replica (rule 11), as a table of states.

Each row says what may happen in a state, and what state follows. Whatever else happens there is an error, which tells
the request's story so far.

    state      event -> state
    asking     reserved -> prefill    gone -> over
    prefill    prefilled -> bound     started -> moving    left -> leaving    gone -> over
    bound      queued -> waiting
    waiting    started -> moving      gone -> over
    moving     landed -> decode       gone -> over
    leaving    gone -> over

`asking`: destination-first, it waits in the decode replica's queue. `prefill`: it waits or runs at the prefill replica;
destination-first, the decode replica has reserved its KV. `bound`: source-first, its prompt is done at this instant.
`waiting`: source-first, it waits for KV at the decode replica, and its own is pinned. `moving`: its KV is under way.
`decode`: it decodes like any other, or waits to be prefilled again, at the decode replica. `leaving`: it has ended, or
its client has left, and chunks of its prompt are still under way.
"""

from collections import deque
from collections.abc import Mapping
from typing import Literal

from stageline.engine.ports import Booked
from stageline.engine.sequence import Sequence
from stageline.engine.types import HandOverRecord, Request
from stageline.errors import LawBroken

State = Literal["asking", "prefill", "bound", "waiting", "moving", "leaving", "decode", "over"]
Event = Literal["reserved", "prefilled", "queued", "started", "landed", "left", "gone"]

TABLE: Mapping[State, Mapping[Event, State]] = {
    "asking": {"reserved": "prefill", "gone": "over"},
    "prefill": {"prefilled": "bound", "started": "moving", "left": "leaving", "gone": "over"},
    "bound": {"queued": "waiting"},
    "waiting": {"started": "moving", "gone": "over"},
    "moving": {"landed": "decode", "gone": "over"},
    "leaving": {"gone": "over"},
    "decode": {},
    "over": {},
}


class Passage:
    """One request, its sequences at both replicas, and when its KV moves. Times in ns, None: not yet."""

    __slots__ = (
        "booked", "chunk_ends", "decode", "end_ns", "ends_due", "has_ended", "landed_ns", "landings_due", "prefill",
        "request", "reserved_ns", "sent_stage_bytes", "start_ns", "state", "story",
    )  # fmt: skip

    def __init__(self, request: Request, prefill: Sequence, state: State) -> None:
        self.request, self.prefill = request, prefill
        prefill.passage = self
        self.decode: Sequence | None = None
        self.state: State = state
        self.story: list[tuple[int, Event, State]] = []
        self.has_ended = False  # its record is written
        self.chunk_ends: deque[int] = deque()  # tokens written after each chunk of the prompt that is in flight
        self.sent_stage_bytes: list[int] = []  # by stage of the source, or booked to be; empty: nothing yet
        self.booked: deque[Booked] = deque()  # transfers that have not landed
        self.ends_due = self.landings_due = 0  # how many of them have not ended, and not landed
        self.reserved_ns: int | None = None
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self.landed_ns: int | None = None

    @property
    def sent_bytes(self) -> int:
        """Of all stages, sent or booked to be."""
        return sum(self.sent_stage_bytes)

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

    @property
    def not_sent(self) -> list[Booked]:
        """Booked transfers that have not ended, in order."""
        return list(self.booked)[len(self.booked) - self.ends_due :]

    @property
    def awaits_room(self) -> bool:
        """Whether it waits in the queue of a decode replica for room for its KV."""
        return self.state in ("asking", "waiting")

    def record(self) -> HandOverRecord:
        """What is told of it."""
        return HandOverRecord(
            decode_replica=self.decode.replica if self.decode else None,
            reserved_ns=self.reserved_ns, start_ns=self.start_ns, end_ns=self.end_ns, landed_ns=self.landed_ns,
            sent_bytes=self.sent_bytes,
        )  # fmt: skip
