"""The states of a request in a fleet, and everything that may move it from one to another.

    WAITING ---admit---> RUNNING ---finish---> FINISHED        (where it is prefilled, and stays)
                           |
                        prefilled                              (source-first)
                           v
                       PREFILLED ---bind---> PINNED ---depart---> MOVING ---land---> RUNNING, now where it decodes

    WANTED ---reserve---> RESERVED ---admit---> PREFILLING ---depart---> MOVING     (destination-first)

The KV of a request is held, in the state:

| state | at the replica that prefills it | at the one that decodes it |
|---|---|---|
| WAITING | - | - |
| LOADING | all that it will hold; some of it on its way from a tier | - |
| RUNNING | as much as rule 6 says, at the replica where it runs | |
| PREFILLED, PINNED | the prompt's, pinned | - |
| WANTED | - | - |
| RESERVED | - | reserved |
| PREFILLING | as rule 6 says; fixed once bytes are booked | reserved |
| MOVING | the prompt's, pinned until the transfer's end | taken, fixed |
| LEAVING | as in the state that its client left; given back when that is over | |
"""

from dataclasses import dataclass, field
from enum import StrEnum, auto


class State(StrEnum):
    """Where a request is. It is in exactly one state."""

    NEW = auto()  # it has reached the router
    WAITING = auto()  # in the queue of the replica that prefills it, or again in that of the one that decodes it
    LOADING = auto()  # admitted; waits for blocks from a tier below the device
    RUNNING = auto()  # admitted; it prefills or decodes
    PREFILLED = auto()  # its last chunk is back on a prefill replica; it is bound to a decode replica at this instant
    PINNED = auto()  # in the queue of its decode replica, its KV pinned where it was prefilled
    WANTED = auto()  # in the queue of its decode replica, for a reservation
    RESERVED = auto()  # reserved there, and in the queue of its prefill replica
    PREFILLING = auto()  # reserved there, and running at its prefill replica
    MOVING = auto()  # its KV is under way, or waits for the ports
    LEAVING = auto()  # its client has left; something that it holds is still in flight
    FINISHED = auto()
    CANCELLED = auto()
    REFUSED = auto()


ENDS = frozenset({State.FINISHED, State.CANCELLED, State.REFUSED})

# state -> event -> state
MOVES: dict[State, dict[str, State]] = {
    State.NEW: {"bind": State.WAITING, "want": State.WANTED, "refuse": State.REFUSED},
    State.WAITING: {"admit": State.RUNNING, "load": State.LOADING, "cancel": State.CANCELLED},
    State.LOADING: {"loaded": State.RUNNING, "leave": State.LEAVING},
    State.RUNNING: {
        "preempt": State.WAITING,
        "prefilled": State.PREFILLED,
        "finish": State.FINISHED,
        "leave": State.LEAVING,
        "cancel": State.CANCELLED,
    },
    State.PREFILLED: {"bind": State.PINNED},
    State.PINNED: {"depart": State.MOVING, "cancel": State.CANCELLED},
    State.WANTED: {"reserve": State.RESERVED, "cancel": State.CANCELLED},
    State.RESERVED: {"admit": State.PREFILLING, "load": State.PREFILLING, "cancel": State.CANCELLED},
    State.PREFILLING: {
        "loaded": State.PREFILLING,
        "preempt": State.RESERVED,
        "depart": State.MOVING,
        "finish": State.FINISHED,
        "leave": State.LEAVING,
        "cancel": State.CANCELLED,
    },
    State.MOVING: {"land": State.RUNNING, "leave": State.LEAVING},
    State.LEAVING: {"cancel": State.CANCELLED},
    State.FINISHED: {},
    State.CANCELLED: {},
    State.REFUSED: {},
}


class IllegalMove(AssertionError):
    """A request was to do what its state does not allow. Tells its story so far."""


@dataclass(slots=True)
class Story:
    """One request's way through the states."""

    index: int
    state: State = State.NEW
    entries: list[tuple[int, str, State, str]] = field(default_factory=list)  # time, event, state after it, where

    def move(self, event: str, now_ns: int, where: str = "") -> None:
        """Raises IllegalMove for an event that the state does not know."""
        after = MOVES[self.state].get(event)
        if after is None:
            raise IllegalMove(f"request {self.index} at {now_ns} ns: {event!r} in state {self.state}\n{self}")
        self.entries.append((now_ns, event, after, where))
        self.state = after

    def __str__(self) -> str:
        """One line per move."""
        return "\n".join(f"{ns:>12} ns  {event:<9} -> {after:<10} {where}" for ns, event, after, where in self.entries)


def table() -> str:
    """The table as text: a row per state, what may happen in it and where that leads."""
    rows = []
    for state, moves in MOVES.items():
        told = "; ".join(f"{event} → {after}" for event, after in moves.items())
        rows.append(f"| `{state}` | {told or '-'} |")
    return "\n".join(["| state | events |", "|---|---|", *rows])
