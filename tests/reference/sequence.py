"""A request on its way, and a microbatch on its way."""

from dataclasses import dataclass, field

from stageline.cost.totals import BatchTotals
from stageline.engine.types import Request
from tests.reference.ledger import Cached

Grant = tuple[int, int, int]  # request index, tokens held, KV blocks of them that the prefix cache holds


@dataclass(slots=True)
class Sequence:
    """What the router knows of one request."""

    request: Request
    order: int  # arrival order over the whole run
    replica: int
    todo_tokens: int = 0  # prefill still to be scheduled
    written_tokens: int = 0  # KV written by what was scheduled
    generated: int = 0
    in_flight: int = 0  # microbatches that carry it now
    ready: bool = False  # its last token has come back and its next decode step may go
    number: int | None = None  # admission number, kept for ever
    admitted_ns: int | None = None
    tokens_ns: list[int] = field(default_factory=list)  # when each sampled token came back
    preemptions: int = 0
    steps: int = 0  # decode steps with drafts that came back
    drafted_tokens: int = 0
    accepted_tokens: int = 0  # drafts that became output
    shared: int = 0  # blocks of the prefix cache that it uses
    cached_tokens: int | None = None  # found at its first admission
    slot: int | None = None  # the slot or virtual engine that it belongs to, where there are any
    awaited: bool = False  # its KV comes from elsewhere and has not landed (rules 11 and 12)
    fixed: bool = False  # its KV is reserved or under way, from or to here: no victim
    whole: bool = False  # it takes all its KV at admission, whatever the policy: its chunks are sent as they come
    leaving: bool = False  # its client has left: it joins no microbatch, and what comes back for it does not count
    sampling_step: int | None = None  # number of the last step that samples for it, where steps have numbers

    @property
    def index(self) -> int:
        """Names the request everywhere."""
        return self.request.index

    @property
    def has_chunk(self) -> bool:
        """Whether prompt tokens are left that a microbatch may take."""
        return bool(self.todo_tokens) and not self.leaving and not self.awaited


@dataclass(frozen=True, slots=True)
class Member:
    """One sequence's part of a microbatch."""

    sequence: Sequence
    decode: bool
    tokens: int  # new ones
    written_before: int
    held_tokens: int  # what the ledgers hold for the sequence from here on
    cached_blocks: int  # KV blocks that the prefix cache holds in its stead
    samples: bool
    completed: range = range(0)  # blocks of the prefix cache that were completed by it, counted from 1


@dataclass(frozen=True, slots=True)
class Microbatch:
    """What travels along the route, with the stamps of rule 7."""

    replica: int
    number: int  # per replica, from 0
    members: tuple[Member, ...]
    releases: tuple[int, ...]  # request indices whose KV goes before this microbatch's is taken
    cached: Cached  # the prefix cache from here on
    dispatch_ns: int
    work_since_ns: int
    empty_since_ns: int
    credit_since_ns: int
    group: int = 0  # its step, slot or virtual engine
    grants: tuple[Grant, ...] = ()  # KV that came without a microbatch, to be taken after the releases (rule 11)
    transfer_since_ns: int = 0

    @property
    def tokens(self) -> int:
        """New tokens."""
        return sum(m.tokens for m in self.members)

    @property
    def sampled(self) -> int:
        """Rows that come back: of a decode step, one for every token that it verifies."""
        return sum(m.tokens if m.decode else 1 for m in self.members if m.samples)

    @property
    def prefills(self) -> bool:
        """Whether it has prefill tokens."""
        return any(not m.decode for m in self.members)

    @property
    def max_drafts(self) -> int:
        """Drafts of the member that has the most."""
        return max(m.tokens - 1 if m.decode else 0 for m in self.members)

    def totals(self) -> BatchTotals:
        """The totals that a service time depends on."""
        decodes = [m for m in self.members if m.decode]
        chunks = [m for m in self.members if not m.decode]
        return BatchTotals(
            decode_sequences=len(decodes),
            decode_tokens=sum(m.tokens for m in decodes),
            decode_kv_tokens=sum(m.written_before + m.tokens for m in decodes),
            decode_pairs=sum(causal_pairs(m.written_before, m.tokens) for m in decodes),
            prefill_sequences=len(chunks),
            prefill_tokens=sum(m.tokens for m in chunks),
            prefill_kv_tokens=sum(m.written_before + m.tokens for m in chunks),
            prefill_pairs=sum(causal_pairs(m.written_before, m.tokens) for m in chunks),
            sampled=self.sampled,
        )


def causal_pairs(cached: int, new: int) -> int:
    """Query-key pairs of a chunk, one query after the other: the i-th new token sees the cached and i new ones."""
    return sum(cached + i for i in range(1, new + 1))
