"""Tokens leave when they are due: all of a client's in one go, and never before."""

from router.live.delivery import Delivery, Lateness
from router.live.stream import Stream
from stageline.engine.types import NEVER, RequestRecord
from stageline.errors import Unavailable
from stageline.sync.realtime import LiveClock


class Client:
    """Notes how many tokens it was notified of."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.heard: list[list[int]] = []

    def notify(self) -> None:
        """See Listener."""
        self.heard.append([s.tokens for s in self.streams])


class Kept:
    """A delivery at dilation 2, and what it reports."""

    def __init__(self) -> None:
        self.lateness = Lateness()
        self.ended: list[RequestRecord] = []
        self.idle = 0
        self.clock = LiveClock(0, 2.0, 0)
        self.delivery = Delivery(self.clock, self.lateness, self.ended.append, idle=self._idle)

    def _idle(self) -> None:
        self.idle += 1

    def stream(self, index: int, client: Client) -> None:
        """Another choice of a client's reply."""
        client.streams.append(self.delivery.open(index, 0, client))


def record(index: int, last_token_ns: int = 9) -> RequestRecord:
    """Of a request that has ended."""
    return RequestRecord(
        index=index, replica=0, arrival_ns=0, admitted_ns=0, first_token_ns=5, last_token_ns=last_token_ns,
        prompt_tokens=1, output_tokens=2, preemptions=0, outcome="finished",
    )  # fmt: skip


def test_a_client_is_notified_once_of_all_that_is_due_and_of_nothing_else() -> None:
    kept, client, other = Kept(), Client(), Client()
    delivery = kept.delivery
    for index, whose in ((0, client), (1, client), (2, other)):
        kept.stream(index, whose)
    for index, due_ns in ((0, 100), (1, 100), (2, 100), (0, 200), (1, 900)):
        delivery.token(index, due_ns, None)
    assert delivery.next_timer_ns == 200
    delivery.poll(199)  # dilation 2: emulated 99
    assert client.heard == other.heard == []
    delivery.poll(400)
    assert (client.heard, other.heard) == ([[2, 1]], [[1]])
    assert delivery.next_timer_ns == 1800
    assert (kept.lateness.tokens, kept.lateness.counts[0]) == (4, 4)
    assert kept.lateness.total_s == (3 * 200 + 0) / 1e9


def test_the_end_comes_with_the_last_token() -> None:
    kept, client = Kept(), Client()
    kept.stream(0, client)
    kept.stream(1, client)
    kept.delivery.token(0, 7, None)
    kept.delivery.request(record(0, 7))
    assert [r.index for r in kept.ended] == [0]
    kept.delivery.poll(14)
    assert client.heard == [[1, 0]]
    assert [s.ended for s in client.streams] == [True, False]
    kept.delivery.token(1, 7, None)  # an instant that has been handed out begins anew
    kept.delivery.poll(14)
    assert client.heard == [[1, 0], [1, 1]]
    assert kept.idle == 0
    kept.delivery.request(record(1, 8))
    kept.delivery.poll(16)
    assert kept.idle == 1


def test_tokens_of_two_replicas_leave_in_the_order_of_time() -> None:
    kept, early, late = Kept(), Client(), Client()
    kept.stream(0, late)
    kept.stream(1, early)
    kept.delivery.token(0, 50, None)
    kept.delivery.token(1, 20, None)
    assert kept.delivery.next_timer_ns == 40
    kept.delivery.poll(60)
    assert (early.heard, late.heard) == ([[1]], [])
    kept.delivery.fail(Unavailable("over"))
    kept.delivery.poll(1000)
    assert late.heard == [[0]]  # of the error alone
    assert isinstance(late.streams[0].error, Unavailable)
    assert kept.delivery.next_timer_ns == NEVER


def test_a_slip_delays_what_is_not_due_yet() -> None:
    kept, client = Kept(), Client()
    kept.stream(0, client)
    kept.delivery.token(0, 50, None)
    kept.clock.slip_to(30)
    kept.delivery.poll(129)
    assert (client.heard, kept.delivery.next_timer_ns) == ([], 130)
    kept.delivery.poll(130)
    assert client.heard == [[1]]
    assert kept.lateness.total_s == 0


def test_what_was_served_to_its_end_is_delivered_though_the_session_broke_off() -> None:
    """It counts as finished, so its client must see it finish."""
    kept, client = Kept(), Client()
    kept.stream(0, client)
    kept.stream(1, client)
    for index, due_ns in ((0, 7), (1, 7), (0, 9)):
        kept.delivery.token(index, due_ns, None)
    kept.delivery.request(record(0, 9))
    kept.delivery.fail(Unavailable("it broke off"))
    done, lost = client.streams
    assert (done.tokens, done.record, done.error) == (2, record(0, 9), None)
    assert (lost.tokens, lost.record) == (0, None)
    assert isinstance(lost.error, Unavailable)
    assert kept.delivery.streams == {}
