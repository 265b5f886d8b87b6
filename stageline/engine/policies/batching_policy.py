"""What a batching policy answers (rule 5)."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from stageline.engine.policies.grouping import Grouping
from stageline.engine.policies.registry import Policy
from stageline.engine.route import Route
from stageline.engine.settings import Scheduling


class Load(NamedTuple):
    """What a replica has to do when a microbatch begins to form. Counts sequences, but for the tokens."""

    running: int
    waiting: int
    partial: int  # running, with a chunk of the prompt to come
    prefill_tokens: int  # to come, of running and waiting ones


class Quota(NamedTuple):
    """The most that a microbatch may hold."""

    members: int
    decodes: int  # of the members
    tokens: int


class BatchingPolicy(Policy, ABC):
    """Limits the sequences of a microbatch. Its answer must depend on its arguments and settings alone.

    `largest` is the limit of the settings or the plan, `credits_` the microbatches that may be in flight.
    """

    def __init__(self, route: Route, credits_: int, largest: int, scheduling: Scheduling) -> None:
        self.route, self.credits, self.largest, self.scheduling = route, credits_, largest, scheduling

    @abstractmethod
    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """Largest number of sequences in the next microbatch, 1 to `largest`.

        `running` and `waiting` count sequences; `context_tokens` is the mean KV length of the running ones.
        """

    def grouping(self, max_running: int) -> Grouping | None:
        """How a serving engine forms its microbatches; None: at the gate, from whoever is ready."""
        return None

    def quota(self, load: Load, batched_tokens: int) -> Quota:
        """The limits of a microbatch of a grouping. `batched_tokens` is the token budget."""
        limit = self.limit(load.running, load.waiting, 0)
        return Quota(limit, limit, batched_tokens)
