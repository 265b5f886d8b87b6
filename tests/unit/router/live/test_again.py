"""What a session keeps so that it can be done again, and what is told of its further attempts."""

from types import SimpleNamespace
from typing import cast

import pytest

from router.live import again
from router.live.again import HoldBack, Journal, Retries
from stageline.engine.microbatch import Item
from stageline.engine.sequence import Sequence
from stageline.engine.types import Cancellation
from stageline.testing import Recorder


def test_what_is_new_is_held_back_and_keeps_its_order() -> None:
    seen, sequence = Recorder(), cast(Sequence, object())
    held = HoldBack(seen)
    held.token(0, 5, None)
    held.hold({1: sequence}.__getitem__)
    held.token(1, 7, None)
    held.token(1, 9, 7)
    assert (len(seen.tokens), held.sequences) == (1, {1: sequence})
    held.release()
    held.token(2, 11, None)
    assert [(token.request, token.now_ns) for token in seen.tokens] == [(0, 5), (1, 7), (1, 9), (2, 11)]
    assert held.sequences == {}


def test_a_journal_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "MAX_EVENTS", 2)
    journal = Journal()
    for number in range(2):
        journal.add(number, Cancellation(index=number, at_ns=number))
    assert (len(journal.events), journal.full) == (2, False)
    journal.add(2, Cancellation(index=2, at_ns=2))
    journal.add(3, Cancellation(index=3, at_ns=3))
    assert (journal.events, journal.full) == ([], True)


def test_every_microbatch_is_told_of_once() -> None:
    told: list[tuple[int, int]] = []
    retries = Retries(Recorder(), lambda replica, items: told.extend((replica, i.microbatch.number) for i in items))

    def leave(replica: int, *numbers: int) -> None:
        items = [SimpleNamespace(microbatch=SimpleNamespace(number=number)) for number in numbers]
        retries.dispatched(replica, cast(list[Item], items))

    leave(0, 0, 1)
    leave(1, 0)
    leave(0, 0, 1, 2)  # the next attempt
    leave(0, 3)
    leave(1, 0, 1)
    assert told == [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1)]
