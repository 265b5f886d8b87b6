"""Which waiting request is scheduled next: one policy, one class. A user's own is named "package.module:Class".

A policy orders the requests of one replica that were never admitted: the smallest key first, equal keys by arrival.
Preempted sequences go before all of them. A router does not know `Request.output_tokens`; what it does know is
`max_output_tokens`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from stageline.engine.policies.registry import Policy, Registry
from stageline.engine.prefix import PrefixCache
from stageline.engine.types import Request


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a state-aware policy may read of its replica at a formation. It must change nothing that it reaches."""

    now_ns: int  # emulated time of the formation
    running: int  # admitted sequences
    waiting: int  # sequences in the queue, preempted ones included
    cache: PrefixCache | None

    def cached_tokens(self, request: Request) -> int:
        """Tokens of its prompt that would not be prefilled if it were admitted now; 0 without a prefix cache."""
        if self.cache is None:
            return 0
        return len(self.cache.match(request.hash_ids, request.prompt_tokens)) * self.cache.hash_block_tokens


class StaticPolicy(Policy, ABC):
    """The order depends on the requests alone. Adding a request and taking one are O(log n)."""

    @abstractmethod
    def key(self, request: Request) -> Any:
        """A sortable key, computed once, when the request arrives."""


class StateAwarePolicy(Policy, ABC):
    """The order depends on the replica's state too. A formation that may admit a request computes n keys.

    All keys are computed once per microbatch, after its decode steps and the chunks of prompts under way are in, before
    the first waiting request is looked at. What is admitted into the microbatch changes no key of it.
    """

    @abstractmethod
    def key(self, request: Request, state: QueueState) -> Any:
        """A sortable key; a function of its arguments alone, so that every engine finds the same order."""


QueueingPolicy = StaticPolicy | StateAwarePolicy


class Fcfs(StaticPolicy):
    """First come, first served."""

    def key(self, request: Request) -> int:
        """Equal for all: arrival order decides."""
        return 0


class ShortestFirst(StaticPolicy):
    """The shortest prompt first."""

    def key(self, request: Request) -> int:
        """The prompt's length in tokens; the output's is not known to a router."""
        return request.prompt_tokens


class Priority(StaticPolicy):
    """The smallest priority number first."""

    def key(self, request: Request) -> int:
        """The request's own priority."""
        return request.priority


class LongestPrefix(StateAwarePolicy):
    """The longest cached prefix first: SGLang's `lpm` (longest prefix match).

    SGLang falls back to arrival order while more than 128 requests wait, and puts off requests with an uncached prefix
    that another waiting request has too. This policy does neither. Source: `SchedulePolicy` in
    python/sglang/srt/managers/schedule_policy.py of sgl-project/sglang.
    """

    needs_prefix_cache = True

    def key(self, request: Request, state: QueueState) -> int:
        """The more cached tokens, the smaller."""
        return -state.cached_tokens(request)


QUEUEING = Registry[QueueingPolicy](
    "queueing",
    {
        "fcfs": Fcfs,
        "shortest": ShortestFirst,
        "priority": Priority,
        "longest-prefix": LongestPrefix,
    },
    users_methods=("key",),
)
