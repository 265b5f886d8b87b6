"""Asks are patient: what answers itself is never asked."""

from stageline.engine.types import NEVER
from stageline.sync.asking import FIRST_TURN_NS, MAX_NS, MIN_NS, Asking

MS = 1_000_000


class Link:
    """What a sender has promised, and the asks of a machine that is polled every 10 ms of its own pace."""

    def __init__(self) -> None:
        self.promised_ns = 0
        self.asking = Asking(lambda _: self.promised_ns)
        self.now_ns = 0
        for _ in range(60):
            self.turn()

    def turn(self, *wanted: tuple[int, int], after_ns: int = 10 * MS) -> list[tuple[int, int]]:
        """Something comes, then a poll."""
        self.now_ns += after_ns
        return self.asking.poll(self.now_ns, list(wanted), news=True)

    def ring(self) -> list[tuple[int, int]]:
        """The timer rings: a poll without news."""
        self.now_ns = self.asking.next_timer_ns
        return self.asking.poll(self.now_ns, [], news=False)


def test_what_is_still_owed_is_asked_once_with_the_latest_time() -> None:
    link = Link()
    assert link.turn((3, 50)) == link.turn((3, 90)) == []
    assert link.ring() == [(3, 90)]
    assert link.asking.next_timer_ns == NEVER


def test_what_has_answered_itself_is_not_asked() -> None:
    link = Link()
    link.turn((3, 50))
    link.promised_ns = 50
    assert link.ring() == []


def test_a_poll_after_the_patience_sends_too() -> None:
    link = Link()
    link.turn((3, 50))
    assert link.turn(after_ns=30 * MS) == []
    assert link.turn(after_ns=30 * MS) == [(3, 50)]


def test_patience_grows_with_asks_that_answer_themselves_and_shrinks_with_those_that_do_not() -> None:
    link = Link()
    seen = []
    for promised_ns in (0, 0, 100, 100, 100, 100):
        link.promised_ns = promised_ns
        link.turn((1, 50))
        link.ring()
        seen.append(link.asking.patience_turns)
    assert seen == [2.0, 1.0, 2.0, 4.0, 8.0, 16.0]


def test_patience_follows_the_pace_of_the_machine_within_bounds() -> None:
    link = Link()
    assert abs(link.asking.patience_ns - 40 * MS) < MS
    link.turn(after_ns=90 * MS)
    assert abs(link.asking.patience_ns - 80 * MS) < MS
    link.turn(after_ns=100_000 * MS)
    assert link.asking.patience_ns == MAX_NS
    for _ in range(200):
        link.turn(after_ns=MIN_NS // 5)
    assert link.asking.patience_ns == 0  # shorter than any timer: until the next poll
    link.turn((1, 50), after_ns=0)
    assert link.asking.next_timer_ns == link.now_ns


def test_at_first_it_is_patient() -> None:
    asking = Asking(lambda _: 0)
    assert asking.poll(0, [(3, 50)], news=True) == []
    assert asking.next_timer_ns >= FIRST_TURN_NS


def test_polls_that_only_the_time_brings_do_not_set_the_pace() -> None:
    link = Link()
    before = link.asking.patience_ns
    link.asking.poll(link.now_ns + 1, [], news=False)
    assert link.asking.patience_ns == before
