"""When KV is allocated (rule 6): all of it up front (`reserve`), or block by block as tokens are written (`grow`)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq
from typing import Protocol

from stageline.engine.forming import Forming
from stageline.engine.mirror import KvMirror
from stageline.engine.policies.registry import Policy, Registry
from stageline.engine.prefix import PrefixCache
from stageline.engine.sequence import Sequence
from stageline.engine.types import Request


class Preemptor(Protocol):
    """Who can preempt running sequences: the replica."""

    def victim(self, grower: Sequence) -> Sequence | None:
        """The sequence to preempt for `grower`; None when there is none."""
        ...

    def preempt(self, sequence: Sequence) -> None:
        """Free its KV and send it back to the head of the queue."""
        ...


class KvPolicy(Policy, ABC):
    """Allocates blocks in the mirror and records them in the grants of the microbatch that is being formed."""

    def __init__(self, mirror: KvMirror, cache: PrefixCache | None = None) -> None:
        self.mirror = mirror
        self.cache = cache

    def max_tokens(self, request: Request) -> int:
        """The largest KV, in tokens, that the request will ever hold; its last token is never written."""
        return request.prompt_tokens + request.max_output_tokens - 1

    @abstractmethod
    def admission_tokens(self, sequence: Sequence, chunk: int) -> int:
        """KV, in tokens, that a waiting sequence must hold to join with `chunk` tokens after its cached ones."""

    @abstractmethod
    def allocate_slots(self, preemptor: Preemptor, sequence: Sequence, tokens: int, forming: Forming) -> bool:
        """Allocate KV for `tokens` more of a running sequence; False: it must wait. May preempt others."""

    def admit(self, sequence: Sequence, chunk: int, forming: Forming) -> bool:
        """Allocate the KV of a waiting sequence, less the cached blocks; False: no room, nothing is allocated."""
        whole = sequence.fixed_kv
        tokens = self.max_tokens(sequence.request) if whole else self.admission_tokens(sequence, chunk)
        context = self.mirror.blocks_for(tokens)
        blocks = context - sequence.cached_blocks
        kept = self.mirror.kept_of(context)
        if not self._has_room(blocks, 1, kept):
            return False
        self._allocate(sequence, (blocks, 1, context), kept, forming)
        return True

    def _has_room(self, blocks: int, states: int, kept: Seq[int]) -> bool:
        """Evicts from the prefix cache if that helps; counts a refusal. `kept`: see `KvMirror`."""
        room = self.mirror.fits if self.cache is None else self.cache.make_room
        if room(blocks, states, kept):
            return True
        self.mirror.count_refusal(blocks, states, kept)
        return False

    def _allocate(self, sequence: Sequence, more: tuple[int, int, int], kept: Seq[int], forming: Forming) -> None:
        """`more`: blocks of its own, states, blocks of its context."""
        blocks, states, context = more
        self.mirror.allocate(blocks, states, kept)
        sequence.blocks += blocks
        forming.grants.append((sequence.request.index, blocks, states, context if kept else 0))


class Reserve(KvPolicy):
    """The largest KV at admission; a running sequence never needs more."""

    def admission_tokens(self, sequence: Sequence, chunk: int) -> int:
        """All that it will ever hold."""
        return self.max_tokens(sequence.request)

    def allocate_slots(self, preemptor: Preemptor, sequence: Sequence, tokens: int, forming: Forming) -> bool:
        """They are there already."""
        return True


class Grow(KvPolicy):
    """Tokens written so far, block by block; when there is no room the youngest idle sequence is preempted."""

    def admission_tokens(self, sequence: Sequence, chunk: int) -> int:
        """What is cached and what the chunk writes."""
        return sequence.written_tokens + chunk

    def allocate_slots(self, preemptor: Preemptor, sequence: Sequence, tokens: int, forming: Forming) -> bool:
        """Preempts until there is room or there is no victim."""
        held = sequence.blocks + sequence.cached_blocks
        blocks = self.mirror.blocks_for(sequence.written_tokens + tokens) - held
        if blocks <= 0:
            return True
        kept = self.mirror.kept_of(blocks, held)
        while not self._has_room(blocks, 0, kept):
            victim = preemptor.victim(sequence)
            if victim is None:
                return False
            preemptor.preempt(victim)
        self._allocate(sequence, (blocks, 0, blocks), kept, forming)
        return True


KV = Registry[KvPolicy](
    "kv",
    {
        "reserve": Reserve,
        "grow": Grow,
    },
)
