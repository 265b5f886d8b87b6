"""The router's view of one replica: who runs, who waits, what is held, and why nothing is dispatched."""

from dataclasses import dataclass, field

from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from tests.reference.ledger import NOTHING, Cached, Ledger
from tests.reference.link import Link
from tests.reference.prefix import Past, PlainCache
from tests.reference.sequence import Grant, Microbatch, Sequence


@dataclass(slots=True)
class Replica:
    """State only; the rules that change it stand in `forming` and `engine`."""

    plan: Plan
    scheduling: Scheduling
    index: int
    link: Link  # to visit 0
    ledgers: list[Ledger]  # the mirror of every stage's
    running: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)  # they go before the others
    queue: list[Sequence] = field(default_factory=list)  # never admitted, by arrival
    in_flight: list[Microbatch] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)  # to leave with the next microbatch
    cache: PlainCache | None = None
    admissions: int = 0
    microbatches: int = 0
    gate_free_ns: int = 0
    depart_ns: int = 0  # when the last microbatch left the router's own (serial) work
    had_work: bool = False
    work_since_ns: int = 0
    empty_since_ns: int = 0
    transfer_since_ns: int = 0
    ran_out_ns: int = 0  # when the last request left
    arrived_at_empty: bool = False  # the first request since then came at this instant
    credit_since_ns: int = 0
    just_returned: bool = False  # a microbatch came back at this instant
    without_room: list[int] = field(default_factory=list)  # running ones whose growth had no room when last tried
    just_arrived: bool = False  # a request came at this instant
    last_step: int = 0
    chosen_waiting: list[int] = field(default_factory=list)  # who waited when the step after the last one was chosen
    chosen_places: int | None = None  # that it found free; None: nothing was chosen yet
    turn: int = 0  # of slots
    reasons: list[tuple[int, str]] = field(default_factory=lambda: [(0, "empty")])

    @property
    def credits_total(self) -> int:
        """Microbatches that may be in flight."""
        return self.scheduling.credits or self.plan.defaults.credits

    @property
    def microbatch_limit(self) -> int:
        """Largest number of sequences in a microbatch."""
        return self.scheduling.microbatch or self.plan.defaults.microbatch

    @property
    def token_limit(self) -> int:
        """Largest number of new tokens in a microbatch."""
        return self.scheduling.batched_tokens or self.plan.defaults.batched_tokens

    @property
    def ranks(self) -> int:
        """Data-parallel ranks."""
        return self.plan.serving.ranks if self.plan.serving else 1

    @property
    def waiting(self) -> list[Sequence]:
        """The whole queue; `queueing.order` says whose turn it is."""
        return self.preempted + self.queue

    @property
    def requests(self) -> int:
        """Requests in the system."""
        return len(self.running) + len(self.preempted) + len(self.queue)

    def note(self, event: str, sequence: Sequence) -> None:
        """A sequence is admitted or preempted; only fleets write a story."""

    def load_below(self, sequence: Sequence) -> bool | None:
        """Admit a waiting sequence by loading what lies below the device. None: it has nothing to load."""
        return None

    def gave_up(self, items: list[tuple[str, Past]]) -> None:
        """The prefix cache has given these up, in this order; only fleets keep them elsewhere."""

    def cached_blocks(self, request: Request) -> int:
        """Blocks of its prompt that it would find here."""
        return 0 if self.cache is None else self.cache.longest(request.hash_ids, request.prompt_tokens)

    def take_grants(self) -> tuple[Grant, ...]:
        """KV that came without a microbatch; only fleets have such."""
        return ()

    def has_credit(self) -> bool:
        """Whether one more microbatch may be in flight."""
        return len(self.in_flight) < self.credits_total

    def has_work(self) -> bool:
        """Whether anything could be put into a microbatch, room or no room."""
        return bool(self.preempted or self.queue) or any(s.ready or s.has_chunk for s in self.running)

    def gate_ns(self) -> int:
        """The gate is open from here on."""
        return self.gate_free_ns - self.plan.links[0].latency_ns

    def reason(self, now_ns: int) -> str:
        """Why nothing is dispatched at this instant, after everything that happened in it."""
        if not self.requests:
            return "empty"
        if not self.has_work():
            return "starved"
        if not self.has_credit():
            return "credit"
        if now_ns < self.gate_ns():
            return "gate"
        return "kv_blocked"

    def has_room(self, sequence: Sequence, tokens: int, without: Cached = NOTHING) -> bool:
        """Whether every stage has room for `sequence` to hold `tokens`, if the cache held so much less."""
        return all(ledger.has_room(sequence.index, tokens, without) for ledger in self.ledgers)

    def hold(self, sequence: Sequence, tokens: int) -> None:
        """Take the room in every mirror."""
        for ledger in self.ledgers:
            ledger.held[sequence.index] = tokens

    def mirror_cache(self, sequence: Sequence) -> None:
        """What the cache holds, alone and in the stead of `sequence`, as every mirror shows it."""
        for ledger in self.ledgers:
            ledger.shared[sequence.index] = sequence.shared * self.blocks_per_identity
            if self.cache is not None:
                ledger.cached = (len(self.cache.held), self.cache.snapshots, self.cache.windows)

    @property
    def blocks_per_identity(self) -> int:
        """KV blocks that one identity stands for."""
        return blocks_per_identity(self.plan, self.scheduling)

    def held_tokens(self, sequence: Sequence) -> int:
        """What a running sequence holds; the same at every stage."""
        return self.ledgers[0].held[sequence.index]

    def drop(self, sequence: Sequence) -> None:
        """Give back all its room here; the stages learn of it with the next microbatch."""
        for ledger in self.ledgers:
            del ledger.held[sequence.index], ledger.shared[sequence.index]
        if self.cache is not None:
            self.cache.let_go(self.cache.identities(sequence.request), sequence.shared)
        sequence.shared = 0
        self.releases.append(sequence.index)


def blocks_per_identity(plan: Plan, scheduling: Scheduling) -> int:
    """KV blocks that one identity stands for."""
    return (scheduling.hash_block_tokens or plan.block_tokens) // plan.block_tokens
