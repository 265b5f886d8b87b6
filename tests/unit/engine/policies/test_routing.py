"""Routing policies: the replica of an arriving request (rule 5)."""

from dataclasses import dataclass

import pytest

from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request

REQUEST = Request(index=0, arrival_ns=0, prompt_tokens=4, output_tokens=3, max_output_tokens=3)


@dataclass
class State:
    """What a policy may read of a replica."""

    index: int
    outstanding_tokens: int
    fill: int
    blocks: int

    def kv_fill(self) -> int:
        """As given."""
        return self.fill

    def cached_blocks(self, request: Request) -> int:
        """As given."""
        return self.blocks


REPLICAS = [State(0, 9, 5, 2), State(1, 3, 7, 0), State(2, 8, 4, 2), State(3, 3, 4, 1)]


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("round-robin", [0, 1, 2, 3, 0]),
        ("least-loaded", [1]),
        ("kv", [2]),
        ("prefix", [2]),
    ],
)
def test_choices_and_ties(name: str, chosen: list[int]) -> None:
    policy = ROUTING.make(Scheduling(balance=name, prefix_cache=True))
    assert [policy.choose(REPLICAS, REQUEST) for _ in chosen] == chosen
