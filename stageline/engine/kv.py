"""When KV is taken (rule 6): all of it up front (`reserve`), or block by block as tokens are written (`grow`)."""

from abc import ABC, abstractmethod
from typing import Protocol

from stageline.engine.forming import Forming
from stageline.engine.mirror import KvMirror
from stageline.engine.prefix import PrefixCache
from stageline.engine.sequence import Sequence
from stageline.engine.types import Request
from stageline.errors import UsageError


class Preemptor(Protocol):
    """Who can take KV from a running sequence: the replica."""

    def victim(self, grower: Sequence) -> Sequence | None:
        """Whom to preempt for `grower`; None when nobody can be."""
        ...

    def preempt(self, sequence: Sequence) -> None:
        """Take its KV and send it back to the head of the queue."""
        ...


class KvPolicyBase(ABC):
    """One policy, one class. Both record what they take in the draft's grants."""

    def __init__(self, mirror: KvMirror, cache: PrefixCache | None = None) -> None:
        self.mirror = mirror
        self.cache = cache

    @abstractmethod
    def most_tokens(self, request: Request) -> int:
        """The largest KV, in tokens, that the request will hold."""

    @abstractmethod
    def first_tokens(self, sequence: Sequence, chunk: int) -> int:
        """KV, in tokens, that a waiting sequence must hold to join with `chunk` tokens after its cached ones."""

    @abstractmethod
    def grow(self, preemptor: Preemptor, sequence: Sequence, tokens: int, forming: Forming) -> bool:
        """Make room for `tokens` more; False: the sequence must wait. May preempt."""

    def admit(self, sequence: Sequence, chunk: int, forming: Forming) -> bool:
        """Take the KV of a waiting sequence; False: no room, nothing taken. Blocks that it shares are there already."""
        blocks = self.mirror.blocks_for(self.first_tokens(sequence, chunk)) - sequence.cached_blocks
        if not self._room(blocks, 1):
            return False
        self._allocate(sequence, blocks, 1, forming)
        return True

    def _room(self, blocks: int, states: int, had: int = 0) -> bool:
        """Eviction comes before any other way to make room; there is none with windows, and `had` matters only then."""
        cache = self.cache
        if cache.make_room(blocks, states) if cache is not None else self.mirror.fits(blocks, states, had):
            return True
        self.mirror.refuse(blocks, states, had)
        return False

    def _allocate(self, sequence: Sequence, blocks: int, states: int, forming: Forming) -> None:
        self.mirror.allocate(blocks, states, sequence.blocks)
        sequence.blocks += blocks
        forming.grants.append((sequence.request.index, blocks, states))


class Reserve(KvPolicyBase):
    """Prompt + largest output at admission; growing needs nothing."""

    def most_tokens(self, request: Request) -> int:
        """Prompt + largest output."""
        return request.prompt_tokens + request.max_output_tokens

    def first_tokens(self, sequence: Sequence, chunk: int) -> int:
        """All that it will ever hold."""
        return self.most_tokens(sequence.request)

    def grow(self, preemptor: Preemptor, sequence: Sequence, tokens: int, forming: Forming) -> bool:
        """Always possible."""
        return True


class Grow(KvPolicyBase):
    """Tokens written so far, block by block; when full the youngest idle sequence is preempted."""

    def most_tokens(self, request: Request) -> int:
        """Prompt + output but for the last token, which is never written."""
        return request.prompt_tokens + request.max_output_tokens - 1

    def first_tokens(self, sequence: Sequence, chunk: int) -> int:
        """What is cached and what the chunk writes."""
        return sequence.written_tokens + chunk

    def grow(self, preemptor: Preemptor, sequence: Sequence, tokens: int, forming: Forming) -> bool:
        """Preempts until there is room or nobody can be preempted."""
        held = sequence.blocks + sequence.cached_blocks
        blocks = self.mirror.blocks_for(sequence.written_tokens + tokens) - held
        if blocks <= 0:
            return True
        while not self._room(blocks, 0, sequence.blocks):
            victim = preemptor.victim(sequence)
            if victim is None:
                return False
            preemptor.preempt(victim)
        self._allocate(sequence, blocks, 0, forming)
        return True


def make_kv_policy(name: str, mirror: KvMirror, cache: PrefixCache | None = None) -> KvPolicyBase:
    """The policy of that name: `reserve` or `grow`. Raises UsageError for another."""
    policies: dict[str, type[KvPolicyBase]] = {"reserve": Reserve, "grow": Grow}
    if name not in policies:
        raise UsageError(f"KV policy {name!r}: there is none of this name; known: {', '.join(policies)}")
    return policies[name](mirror, cache)
