"""Rules 10 and 11: a replica of a fleet, a request's way through it, and a transfer between two replicas."""

from dataclasses import dataclass, field

from stageline.engine.types import Request
from tests.reference import tiers
from tests.reference.fleet_types import LoadRecord, Pool
from tests.reference.prefix import Past
from tests.reference.replica import Replica
from tests.reference.sequence import Grant, Sequence
from tests.reference.states import Story
from tests.reference.tiers import Load, TierState


@dataclass(slots=True)
class Transfer:
    """KV that goes from one replica to another: booked, and perhaps still to come."""

    number: int  # over the whole run, in the order of booking
    index: int  # of the request
    source: int
    destination: int
    size_bytes: int
    start_ns: int
    end_ns: int
    landed_ns: int
    last: bool  # of the request: what lands is complete


@dataclass(slots=True)
class Journey:
    """One request in a fleet: a sequence where it is prefilled, and one more where it decodes after a hand-over."""

    request: Request
    story: Story
    first: Sequence | None = None
    second: Sequence | None = None
    transfers: list[Transfer] = field(default_factory=list)
    ends_due: int = 0  # booked transfers that have not ended
    landings_due: int = 0
    load: LoadRecord | None = None
    ended_ns: int | None = None

    @property
    def tokens_ns(self) -> list[int]:
        """When its tokens came."""
        return [ns for part in (self.first, self.second) if part is not None for ns in part.tokens_ns]


@dataclass
class Book:
    """What all replicas of a fleet share: the time, and every request's journey."""

    now_ns: int = 0
    journeys: dict[int, Journey] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)  # begun, and not in the heap yet

    def move(self, index: int, event: str, replica: int | None = None) -> None:
        """A request goes into another state."""
        where = "" if replica is None else f"replica {replica}"
        self.journeys[index].story.move(event, self.now_ns, where)


@dataclass
class FleetReplica(Replica):
    """A replica that has a role, ports, and KV that is no request's of its own."""

    pool: Pool = field(kw_only=True)
    book: Book = field(kw_only=True)
    pinned: list[Sequence] = field(default_factory=list)  # prefilled here, to be sent or under way
    grants: dict[int, Grant] = field(default_factory=dict)  # to leave with the next microbatch
    known: set[int] = field(default_factory=set)  # what the stages hold, or will when they have what was sent
    egress_free_ns: int = 0
    ingress_free_ns: int = 0
    last_dispatch_ns: int = 0
    host: TierState | None = None
    store: TierState | None = None
    offload: str = "evict"
    load_policy: str = "cheaper"
    sees_host: bool = False
    gate_opens_ns: int | None = None  # when it looks again for that alone
    had_own: bool = False  # whether it had requests of its own after the last formation
    all_await_since_ns: int | None = None  # since when there is no work, as all requests here await KV

    @property
    def tiers(self) -> list[TierState]:
        """What lies below its prefix cache, from the top."""
        return [tier for tier in (self.host, self.store) if tier is not None] if self.cache is not None else []

    def gave_up(self, items: list[tuple[str, Past]]) -> None:
        """They go down, unless all has gone there before."""
        if self.tiers and self.offload == "evict":
            for what, past in items:
                self.tiers[0].write(tiers.key_of(self, what, past), self.book.now_ns)

    def cached_blocks(self, request: Request) -> int:
        """As on any replica; with host memory, if the router sees that."""
        if not self.sees_host or self.host is None or self.cache is None:
            return super().cached_blocks(request)
        ids, block_tokens = request.hash_ids, self.cache.block_tokens
        usable = [ids[:n] for n in range(1, len(ids) + 1) if n * block_tokens < request.prompt_tokens]
        return tiers.longest(self, usable, [self.host])

    def load_below(self, sequence: Sequence) -> bool | None:
        """Admit it by loading what lies below the device. None: it has nothing to load."""
        load = tiers.find_load(self, sequence, -(-self.token_limit // self.ranks))
        if load is None:
            return None
        if self.grower_waits() or not tiers.start(self, load):
            return False
        if not self.own and self.had_own:
            self.ran_out_ns = self.book.now_ns
        self.book.journeys[sequence.index].load = tiers.record(self, load)
        self.book.loads.append(load)
        return True

    def grower_waits(self) -> bool:
        """Whether the growth of a running sequence had no room when it was last tried."""
        return any(s.index in self.without_room for s in self.running)

    @property
    def here(self) -> list[Sequence]:
        """Everybody who waits, runs or is pinned here."""
        return self.waiting + self.running + self.pinned

    @property
    def own(self) -> list[Sequence]:
        """Its requests but those that await KV from elsewhere."""
        return [s for s in self.running + self.preempted + self.queue if not s.awaited]

    def reason(self, now_ns: int) -> str:
        """As of any replica; and `transfer`."""
        reason = super().reason(now_ns)
        return "transfer" if reason == "starved" and not self.own else reason

    def note(self, event: str, sequence: Sequence) -> None:
        """Into the story of the request."""
        self.book.move(sequence.index, event, self.index)

    def grant(self, sequence: Sequence) -> None:
        """What a sequence holds goes to the stages with the next microbatch."""
        blocks = sequence.shared * self.blocks_per_identity
        self.grants[sequence.index] = (sequence.index, self.held_tokens(sequence), blocks)

    def take_grants(self) -> tuple[Grant, ...]:
        """They leave now."""
        grants = tuple(self.grants.values())
        self.known |= set(self.grants)
        self.grants.clear()
        return grants

    def drop(self, sequence: Sequence) -> None:
        """Give back all its room; what the stages have not heard of they never hear of."""
        super().drop(sequence)
        self.grants.pop(sequence.index, None)
        if sequence.index in self.known:
            self.known.remove(sequence.index)
        else:
            self.releases.remove(sequence.index)

    def sent(self, indices: list[int]) -> None:
        """A microbatch with these members has left."""
        self.known |= set(indices)

    def remove(self, sequence: Sequence) -> None:
        """Out of the queue or of the running ones, with all that it holds."""
        for home in (self.queue, self.preempted):
            if sequence in home:
                home.remove(sequence)
                return
        self.running.remove(sequence)
        self.drop(sequence)
