"""A run that is done again shows what is new, and nothing twice; what differs is a broken law."""

from collections.abc import Callable

import msgspec
import pytest

from stageline.cluster.attempts import Retry, attempted
from stageline.engine.types import Observer, RequestRecord
from stageline.errors import Busy, LawBroken, RunFailed, StagelineError, Unavailable
from stageline.testing import Recorder

RECORD = RequestRecord(
    index=0, replica=0, arrival_ns=0, admitted_ns=0, first_token_ns=5, last_token_ns=9, prompt_tokens=1,
    output_tokens=2, preemptions=0, outcome="finished",
)  # fmt: skip
Script = Callable[[Observer], None]


def whole(seen: Observer) -> None:
    """Two requests, the second one after the first."""
    seen.token(0, 5, None)
    seen.token(1, 7, None)
    seen.token(0, 9, 5)
    seen.request(RECORD)
    seen.token(1, 11, 7)
    seen.request(msgspec.structs.replace(RECORD, index=1, first_token_ns=7, last_token_ns=11))


def until(calls: int, error: StagelineError) -> Script:
    """The first calls of `whole`, then the end; what has begun is told as incomplete, as the router does."""

    def script(seen: Observer) -> None:
        class Ending(Recorder):
            left = calls

            def token(self, *token: object) -> None:
                self.count(lambda: seen.token(*token))

            def request(self, record: RequestRecord) -> None:
                self.count(lambda: seen.request(record))

            def count(self, call: Callable[[], None]) -> None:
                if not self.left:
                    seen.request(msgspec.structs.replace(RECORD, index=1, outcome="incomplete"))
                    raise error
                self.left -= 1
                call()

        whole(Ending())

    return script


async def run(*scripts: Script, retries: int = 3) -> tuple[Recorder, list[str]]:
    """Attempts that go like that; what the observer saw, and why it was done again."""
    left, seen, reasons = list(scripts), Recorder(), []

    async def attempt(observer: Observer) -> None:
        left.pop(0)(observer)

    async def healthy() -> None:
        return

    try:
        await attempted(attempt, seen, Retry(retries=retries, again=reasons.append), healthy)
    finally:
        run.seen = seen
    return seen, reasons


@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("second", range(6))
async def test_any_two_deaths_show_what_one_run_shows(first: int, second: int) -> None:
    wanted = Recorder()
    whole(wanted)
    seen, reasons = await run(until(first, RunFailed("a stage")), until(second, Unavailable("the router")), whole)
    assert (seen.tokens, seen.requests) == (wanted.tokens, wanted.requests)
    assert reasons == ["a stage", "the router"]


async def test_what_was_under_way_is_incomplete_after_the_last_attempt() -> None:
    with pytest.raises(RunFailed, match="again"):
        await run(until(4, RunFailed("once")), until(2, RunFailed("again")), retries=1)
    assert [record.outcome for record in run.seen.requests] == ["finished", "incomplete"]


async def test_what_waiting_does_not_mend_is_not_tried_again() -> None:
    with pytest.raises(Busy):
        await run(until(1, Busy("another run")), whole)


@pytest.mark.parametrize("change", [{"last_token_ns": 10}, {"output_tokens": 3}, {"preemptions": 1}])
async def test_another_end_is_a_broken_law(change: dict[str, int]) -> None:
    def other(seen: Observer) -> None:
        seen.token(0, 5, None)
        seen.token(0, 9, 5)
        seen.request(msgspec.structs.replace(RECORD, **change))

    with pytest.raises(LawBroken, match="L8': request 0"):
        await run(until(4, RunFailed("a stage")), other)


async def test_a_token_at_another_time_is_a_broken_law() -> None:
    with pytest.raises(LawBroken, match="L8': request 0"):
        await run(until(1, RunFailed("a stage")), lambda seen: seen.token(0, 6, None))
