"""A call and its reply: what every kind of target takes, and what it fills in."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, get_args

import msgspec

from stageline.report.distributions import Histogram
from stageline.units import NS_PER_S

CallOutcome = Literal["finished", "rejected", "failed", "cancelled", "incomplete"]
Credit = Callable[[int, int], None]  # (wall time, tokens)
RETRY_NS = NS_PER_S  # how long a rejected user waits when the server sends no Retry-After
MAX_RETRY_AFTER_NS = 3600 * NS_PER_S
CALL_OUTCOMES: tuple[CallOutcome, ...] = get_args(CallOutcome)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. `prompt` is JSON: a list of token ids, a text, or a list of messages."""

    prompt: bytes
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int
    priority: int = 0
    conversation: str = ""
    model: str = ""  # that the workload names; empty: the target's


class Emulated(msgspec.Struct, frozen=True):
    """The server's own figures, in emulated ns from the request's arrival at the server.

    `gaps_ns`: from each token to the next; None: not stated.
    """

    queue_ns: int
    ttft_ns: int
    e2e_ns: int
    arrival_ns: int | None = None  # since the server's clock began
    gaps_ns: Sequence[int] | None = None


class CallReply(msgspec.Struct, kw_only=True):
    """A reply, filled in as it arrives, so that one that breaks off keeps what it had. Times are wall time.

    Outcome `rejected`: the server is up but took no request (429, 503). `failed`: refused, broken off or too late.
    `reason` is a short name to count by, `detail` a sentence.
    """

    gaps: Histogram  # times between two chunks go here
    credit: Credit | None = None  # is told of tokens when they come
    keep_text: bool = False
    outcome: CallOutcome = "incomplete"
    reason: str = ""
    detail: str = ""
    sent_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    end_ns: int = 0
    chunks: int = 0
    prompt_tokens: int | None = None  # as the server counts
    output_tokens: int | None = None  # as the server counts
    emulated: Emulated | None = None
    dilation: str | None = None  # as this reply states it
    retry_after_ns: int = 0
    retries: int = 0  # how often the call was sent again
    retry_wait_ns: int = 0  # from the first sending to the last
    credited_tokens: int = 0
    text: list[str] = msgspec.field(default_factory=list)

    def sent(self, now_ns: int) -> None:
        """Records that the call leaves, for the first time or again."""
        if self.sent_ns is None:
            self.sent_ns = now_ns
        self.retry_wait_ns = now_ns - self.sent_ns

    def chunk(self, now_ns: int, text: str, tokens: int = 1) -> None:
        """Records that some output has arrived: a token, unless the server says how many."""
        if self.last_ns is None:
            self.first_ns = now_ns
        else:
            self.gaps.add(now_ns - self.last_ns)
        self.last_ns = now_ns
        self.chunks += 1
        self.credited_tokens += tokens
        if self.credit is not None:
            self.credit(now_ns, tokens)
        if self.keep_text:
            self.text.append(text)

    def end(self, outcome: CallOutcome, reason: str = "", detail: str = "") -> None:
        """Records how the call ended."""
        self.outcome, self.reason, self.detail = outcome, reason, detail

    def settle(self) -> None:
        """Credits what the server's count of tokens is more, or less, than the chunks that came."""
        missing = self.produced_tokens - self.credited_tokens
        if missing and self.credit is not None:
            self.credit(self.end_ns if self.last_ns is None else self.last_ns, missing)
        self.credited_tokens += missing

    def again(self) -> None:
        """The call is sent again: how it ended so far does not count."""
        self.outcome, self.reason, self.detail, self.retry_after_ns = "incomplete", "", "", 0
        self.retries += 1

    @property
    def may_retry(self) -> bool:
        """Whether nothing has come and the server, or its absence, asks to try again."""
        return self.retry_after_ns > 0 and not self.chunks and self.outcome in ("rejected", "failed")

    @property
    def produced_tokens(self) -> int:
        """Tokens of the output: the server's count, or else one per chunk."""
        return self.chunks if self.output_tokens is None else self.output_tokens


class Target(Protocol):
    """A server that calls are sent to."""

    async def send(self, call: Call, reply: CallReply) -> None:
        """Sends the call and fills in the reply, failures included; raises nothing."""
        ...
