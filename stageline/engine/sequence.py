"""A request inside the router, with its progress."""

from typing import TYPE_CHECKING

from stageline.engine.prefix import HashBlock
from stageline.engine.types import LoadRecord, Outcome, Request, RequestRecord

if TYPE_CHECKING:
    from stageline.engine.passage import Passage


class Sequence:
    """Owned and mutated by one replica. Waiting -> running -> finished; preemption sends it back to waiting.

    `todo_tokens` are prompt tokens (after a preemption: prompt + generated) not yet given to a microbatch;
    `written_tokens` those in its KV as scheduled so far; `blocks` the KV blocks it holds.
    """

    __slots__ = (
        "admitted_ns",
        "block_ids",
        "blocks",
        "cached_blocks",
        "cached_tokens",
        "cancelled",
        "chain",
        "first_ns",
        "fixed",
        "fixed_kv",
        "generated",
        "group",
        "in_flight",
        "incoming",
        "last_ns",
        "load",
        "number",
        "passage",
        "preemptions",
        "ready",
        "replica",
        "request",
        "running",
        "todo_tokens",
        "waits_since",
        "written_tokens",
    )  # fmt: skip

    def __init__(self, request: Request, replica: int) -> None:
        self.request = request
        self.replica = replica
        self.number: int | None = None  # admission number, given once
        self.running = False
        self.ready = False  # its previous token has returned: it may join a microbatch with a decode step
        self.todo_tokens = request.prompt_tokens
        self.written_tokens = 0
        self.blocks = 0
        self.block_ids: tuple[int, ...] = ()  # identities of its blocks, answer included; the prefix cache sets them
        self.chain: list[HashBlock] = []  # blocks of the prefix cache that it holds, from the start of the prompt
        self.cached_blocks = 0  # KV blocks of that chain
        self.cached_tokens: int | None = None  # hit at its first admission; None without a cache
        self.generated = 0
        self.group: int | None = None  # step that last sampled for it, or its slot or engine; see `Grouping`
        self.waits_since = 0  # steps that were chosen before it came to wait; see `Cadence`
        self.in_flight = 0  # microbatches in flight that it is a member of
        self.preemptions = 0
        self.cancelled = False  # its client left while it was in flight
        self.passage: Passage | None = None  # between a prefill replica and a decode replica
        self.fixed_kv = False  # it takes all its KV at admission, whatever the policy
        self.fixed = False  # its KV is being sent away: it can't be preempted
        self.incoming = False  # its replica waits for its KV: on the way, or (handed over) not yet
        self.load: LoadRecord | None = None  # the last one
        self.admitted_ns: int | None = None
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    @property
    def outstanding_tokens(self) -> int:
        """Remaining work as a real router knows it: tokens to prefill plus tokens that it may still generate."""
        return self.todo_tokens + self.request.max_output_tokens - self.generated

    def record(self, outcome: Outcome) -> RequestRecord:
        """Its line of requests.jsonl."""
        r = self.request
        first = self.replica if self.passage is None else self.passage.prefill.replica
        return RequestRecord(
            index=r.index, replica=first, arrival_ns=r.arrival_ns, admitted_ns=self.admitted_ns,
            first_token_ns=self.first_ns, last_token_ns=self.last_ns, prompt_tokens=r.prompt_tokens,
            output_tokens=self.generated, preemptions=self.preemptions, outcome=outcome,
            cached_tokens=self.cached_tokens, hand_over=self.passage.record() if self.passage is not None else None,
            load=self.load,
        )  # fmt: skip


def refused(request: Request) -> RequestRecord:
    """The line of a request that was refused at arrival."""
    return RequestRecord(
        index=request.index, replica=None, arrival_ns=request.arrival_ns, admitted_ns=None, first_token_ns=None,
        last_token_ns=None, prompt_tokens=request.prompt_tokens, output_tokens=0, preemptions=0, outcome="refused",
    )  # fmt: skip
