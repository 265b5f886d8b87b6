"""The KV of one replica as its router accounts for it (rules 6, 8 and 11): held, cached, pinned, given back."""

from stageline.engine.below import Below, Hit
from stageline.engine.forming import Forming
from stageline.engine.mirror import KvMirror
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.prompt_cache import make_cache
from stageline.engine.request_queue import RequestQueue, RequestQueues
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request


class ReplicaKv:
    """Mirror, prefix cache and KV policy of a replica, and what its stages have not been told yet."""

    def __init__(self, route: Route, scheduling: Scheduling) -> None:
        self.route = route
        self.mirror = KvMirror(route.plan)
        self.cache = make_cache(self.mirror, route, scheduling)
        self.below: Below | None = None  # tiers below the prefix cache
        self.kv = KV.find(scheduling)(self.mirror, self.cache)
        self.waiting: RequestQueue | RequestQueues = RequestQueue(QUEUEING.make(scheduling))
        self.running: dict[int, Sequence] = {}  # by request index
        self.outstanding_tokens = 0
        self.written_tokens = 0  # of all running sequences
        self.releases: list[int] = []  # owners whose KV was freed since the last microbatch
        self.between = Forming(0, 0)  # its grants: KV taken since then, for no member of a microbatch
        self.pinned: dict[int, Sequence] = {}  # prefilled here, their KV not yet sent away; by request index
        self._waiting_blocks = 0  # the most that the waiting sequences will hold
        self._waiting_kept = [0] * len(self.mirror.caps)  # of that, what windows will keep

    def fits_empty(self, request: Request) -> bool:
        """Whether its KV fits the ledgers while nobody else uses them."""
        return self.mirror.fits_empty(self.mirror.blocks_for(self.kv.max_tokens(request)))

    def kv_fill(self) -> int:
        """See `ReplicaState` of the routing policies."""
        return self.mirror.fill(self._waiting_blocks, len(self.waiting), self._waiting_kept)

    def kv_in_use(self) -> int:
        """KV of the fullest stage that no eviction would free, in units of 2**-40 of its budget."""
        if self.cache is None:
            return self.mirror.fill(0, 0)
        blocks, states, kept = self.cache.evictable()
        return self.mirror.fill(-blocks, -states, [-n for n in kept])

    def cached_blocks(self, request: Request) -> int:
        """See `ReplicaState` of the routing policies."""
        if self.below is not None and self.below.rules.sees_host:
            return self.below.seen_blocks(request)
        return len(self.cache.match(request.hash_ids, request.prompt_tokens)) if self.cache is not None else 0

    def cached_tokens(self, request: Request) -> int:
        """Tokens of those."""
        return self.cached_blocks(request) * self.cache.hash_block_tokens if self.cache is not None else 0

    def take_releases(self) -> tuple[int, ...]:
        """Owners whose KV was freed since the last microbatch."""
        releases, self.releases = tuple(self.releases), []
        if self.cache is not None:
            releases += tuple(owner for owner in self.cache.take_evicted() if not self.between.withdraw(owner))
        return releases

    def last_releases(self) -> tuple[int, ...]:
        """The run is over: owners of everything that is still held, cached blocks included."""
        if self.cache is not None:
            self.cache.clear()
        return self.take_releases()

    def acquire_prefix(self, sequence: Sequence) -> None:
        """Hold the cached blocks of its prompt: their tokens are not prefilled."""
        if self.cache is not None:
            self._skip(sequence, self.cache.acquire(sequence))

    def take_hit(self, sequence: Sequence, hit: Hit, forming: Forming) -> bool:
        """Pin what a hit reads in all places and allocate the KV for it; False: no room, nothing is pinned."""
        if self.cache is None or self.below is None:
            return False
        self.cache.acquire_chain(sequence, hit.chain)
        self._skip(sequence, hit.tokens)
        self.below.pin(hit)
        if self.kv.admit(sequence, 0, forming):
            return True
        hit.unpin()
        self.release_prefix(sequence)
        return False

    def _skip(self, sequence: Sequence, tokens: int) -> None:
        """So many tokens need not be prefilled."""
        sequence.todo_tokens -= tokens
        sequence.written_tokens = tokens
        self.outstanding_tokens -= tokens
        self.written_tokens += tokens

    def release_prefix(self, sequence: Sequence) -> None:
        """It can't be admitted: undo what its hit has changed."""
        cached = sequence.written_tokens
        if self.cache is not None:
            self.cache.release(sequence)
        sequence.todo_tokens += cached
        sequence.written_tokens = 0
        self.outstanding_tokens += cached
        self.written_tokens -= cached

    def free_kv(self, sequence: Sequence) -> None:
        """It holds no KV; the prefix cache keeps its full blocks."""
        self.mirror.free(sequence.blocks, 1, self.mirror.kept_of(sequence.blocks + sequence.cached_blocks))
        if not self.between.withdraw(sequence.request.index):
            self.releases.append(sequence.request.index)
        sequence.blocks = sequence.written_tokens = 0
        if self.cache is not None:
            self.cache.release(sequence)

    def take_kv(self, sequence: Sequence, *, acquire: bool) -> bool:
        """Allocate the KV of a hand-over; with `acquire` less what is cached here. False: no room."""
        if self.cache is not None:
            self.cache.prepare(sequence, acquire=acquire)
        still_to_write = sequence.request.prompt_tokens - sequence.written_tokens  # room for it is taken all the same
        if self.kv.admit(sequence, still_to_write, self.between):
            return True
        if self.cache is not None:
            self.cache.release(sequence)
        return False

    def unpin(self, sequence: Sequence) -> None:
        """Its KV has been sent, or is not wanted."""
        del self.pinned[sequence.request.index]
        self.free_kv(sequence)

    def pinned_bytes(self) -> int:
        """KV of all pinned sequences on all stages together; a block that they share counts once."""
        held = list(self.pinned.values())
        blocks = sum(s.blocks for s in held)
        if self.cache is not None:
            blocks += self.cache.kv_blocks * len({id(block) for s in held for block in s.chain})
        windows = [s.blocks + s.cached_blocks for s in held]
        return sum(
            blocks * stage.kv_block_bytes + len(held) * stage.state_bytes + sum(map(stage.window_bytes, windows))
            for stage in self.route.plan.stages
        )

    def cached_tokens_of(self, sequence: Sequence) -> int:
        """Tokens of a hand-over whose KV it found here."""
        return len(sequence.chain) * self.cache.hash_block_tokens if self.cache is not None else 0

    def count_waiting(self, sequence: Sequence, sign: int) -> None:
        """It starts (1) or stops (-1) waiting: count the most KV that it will hold."""
        blocks = self.mirror.blocks_for(self.kv.max_tokens(sequence.request))
        self._waiting_blocks += sign * blocks
        if self._waiting_kept:
            kept = self.mirror.kept_of(blocks)
            self._waiting_kept = [a + sign * b for a, b in zip(self._waiting_kept, kept, strict=True)]
