"""What a live session counts over its attempts."""

from types import SimpleNamespace
from typing import Any

from router.live.session import LiveSession


class Attempt:
    """One of which frames came back."""

    def __init__(self, frames: int, microbatches: int) -> None:
        self.connections = SimpleNamespace(frames=(frames, microbatches))


async def test_frames_are_those_of_all_attempts_also_of_one_that_did_not_catch_up() -> None:
    session: Any = LiveSession.__new__(LiveSession)
    further = iter([Attempt(0, 0), Attempt(0, 0)])
    held = SimpleNamespace(release=lambda: None)
    session._retries = SimpleNamespace(attempt=lambda *_: next(further), held=held)
    session._ground = session._watch = None
    session._eyes = lambda dispatched: None
    session._past_frames, session._attempt = (0, 0), Attempt(10, 15)
    session._newest = session._attempt
    assert session.frames == (10, 15)
    session.begin_again().connections.frames = (4, 6)
    assert session.frames == (14, 21)
    newest = session.begin_again()  # that one was lost before it had caught up
    newest.connections.frames = (11, 16)
    assert session.frames == (25, 37)
    session._take_over()
    assert session.frames == (25, 37)
    newest.connections.frames = (12, 17)
    assert session.frames == (26, 38)
