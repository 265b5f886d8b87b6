"""One call and what came back: what every kind of target takes and fills in."""

from typing import Literal, Protocol, get_args

import msgspec

from stageline.report.series import Histogram
from stageline.units import NS_PER_S

Outcome = Literal["finished", "rejected", "failed", "cancelled", "incomplete"]
RETRY_NS = NS_PER_S  # how long a user who was rejected waits when the server names no time: hammering helps nobody
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. `prompt` is JSON: a list of ids, a text, or a list of messages."""

    prompt: bytes
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int
    priority: int = 0
    session: str = ""


class Emulated(msgspec.Struct, frozen=True):
    """What the server says its cluster took, in emulated ns from the request's arrival there."""

    queue_ns: int
    ttft_ns: int
    e2e_ns: int


class Reply(msgspec.Struct, kw_only=True):
    """Filled in while the reply comes, so that one that breaks off keeps what it had. Times are the wall's.

    rejected: the server is there and would not take it (429, 503). failed: refused, broken off or late. `reason` is a
    short name to count by, `detail` a sentence.
    """

    gaps: Histogram  # times between two chunks go here
    keep_text: bool = False
    outcome: Outcome = "incomplete"
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
    dilation: str | None = None  # as this reply says it
    retry_after_ns: int = 0
    text: list[str] = msgspec.field(default_factory=list)

    def chunk(self, now_ns: int, text: str) -> None:
        """Some of the output has come."""
        if self.last_ns is None:
            self.first_ns = now_ns
        else:
            self.gaps.add(now_ns - self.last_ns)
        self.last_ns = now_ns
        self.chunks += 1
        if self.keep_text:
            self.text.append(text)

    def end(self, outcome: Outcome, reason: str = "", detail: str = "") -> None:
        """How it ended."""
        self.outcome, self.reason, self.detail = outcome, reason, detail

    @property
    def produced_tokens(self) -> int:
        """Tokens of the output: the server's count, or else one per chunk."""
        return self.chunks if self.output_tokens is None else self.output_tokens


class Target(Protocol):
    """Where calls go."""

    async def send(self, call: Call, reply: Reply) -> None:
        """Carries the call out and fills the reply in; whatever goes wrong with it stands there, nothing is raised."""
        ...
