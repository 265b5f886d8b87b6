"""The protocol that all machines of a session speak, stage or router, in emulated-time runs and in live sessions."""

from typing import Protocol

from stageline.sync.frames import Frame

Frames = list[tuple[int, Frame]]  # with the key of the outgoing link that carries each
Asks = list[tuple[int, int]]  # key of an incoming link, and up to which emulated time a promise is needed


class Machine(Protocol):
    """A pure machine that is told the time: `receive` and `asked` take what came, `poll` says what must go out.

    Keys name links: a stage's by their number, the router's by their replica. `now_ns` and `next_timer_ns` are wall
    time of one monotonic clock. Whoever drives the machine polls it after everything that came, and at `next_timer_ns`.
    """

    next_timer_ns: int  # when to poll again though nothing has come; NEVER: not before something comes
    done: bool  # the run is over and every stage has applied its last releases

    def receive(self, key: int, frame: Frame) -> None:
        """Take a frame from an incoming link. Raises ProtocolError."""
        ...

    def asked(self, key: int, time_ns: int) -> None:
        """The far end of an outgoing link wants to know that nothing arrives before `time_ns`. Raises ProtocolError."""
        ...

    def poll(self, now_ns: int) -> tuple[Frames, Asks]:
        """Do all that is safe; returns frames for outgoing links and asks for incoming ones."""
        ...
