"""Queueing policies, and the queue that they order (rule 5)."""

import dataclasses
import itertools
from typing import Any

import pytest

from stageline.engine.mirror import KvMirror
from stageline.engine.policies.queueing import QUEUEING, QueueState, StateAwarePolicy, StaticPolicy
from stageline.engine.prefix import HashBlock, PrefixCache
from stageline.engine.request_queue import RequestQueue
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from tests.unit.engine.builders import plan

STATE = QueueState(now_ns=0, running=0, waiting=0, cache=None)


def request(index: int, prompt: int = 4, priority: int = 0, hash_ids: tuple[int, ...] = ()) -> Request:
    return Request(
        index=index, arrival_ns=0, prompt_tokens=prompt, output_tokens=3, max_output_tokens=3, priority=priority,
        hash_ids=hash_ids,
    )  # fmt: skip


def queue_of(queueing: str, *requests: Request) -> RequestQueue:
    queue = RequestQueue(QUEUEING.make(Scheduling(queueing=queueing, prefix_cache=True)))
    for r in requests:
        queue.add(Sequence(r, 0))
    return queue


def taken(queue: RequestQueue, state: QueueState = STATE) -> list[int]:
    queue.reorder(state)
    return [queue.take().request.index for _ in range(len(queue))]


class LongestFirst(StaticPolicy):
    """A user's own policy."""

    def key(self, request: Request) -> int:
        """The longest prompt first."""
        return -request.prompt_tokens


class OnlyAKey:
    """A user's class without a base."""

    def key(self, request: Request) -> int:
        """The last one first."""
        return -request.index


class LongestPrefixOfFew(StateAwarePolicy):
    """What SGLang does: the longest cached prefix first, arrival order while more than 128 requests wait."""

    needs_prefix_cache = True

    def key(self, request: Request, state: QueueState) -> int:
        """See the class."""
        return 0 if state.waiting > 128 else -state.cached_tokens(request)


class OtherEveryTime(StateAwarePolicy):
    """Breaks its promise: the answer depends on how often it was asked."""

    def __init__(self) -> None:
        self.asked = itertools.count()

    def key(self, request: Request, state: QueueState) -> int:
        """Never the same."""
        return next(self.asked) * 7919 % 13


class Moody:
    """A key whose order turns around at every comparison."""

    turns = itertools.count()

    def __lt__(self, other: object) -> bool:
        return next(self.turns) % 2 == 0


class MoodyKeys(StaticPolicy):
    """Breaks its promise with its keys."""

    def key(self, request: Request) -> Any:
        """Not sortable in earnest."""
        return Moody()


def test_policies_order_and_keep_arrival_order_among_equals() -> None:
    requests = [request(0, prompt=9, priority=1), request(1, prompt=2, priority=1), request(2, prompt=2)]
    assert taken(queue_of("fcfs", *requests)) == [0, 1, 2]
    assert taken(queue_of("shortest", *requests)) == [1, 2, 0]
    assert taken(queue_of("priority", *requests)) == [2, 0, 1]
    assert taken(queue_of(f"{__name__}:LongestFirst", *requests)) == [0, 1, 2]
    assert taken(queue_of(f"{__name__}:OnlyAKey", *requests)) == [2, 1, 0]


def cache_with(*hash_ids: int) -> PrefixCache:
    """A cache of blocks of 4 tokens that holds one chain."""
    cache = PrefixCache(KvMirror(plan()), 4, 0)
    chain: list[HashBlock] = []
    for key in hash_ids:
        cache.extend(chain, key, 0, [])
    return cache


PROMPTS = (
    request(0, prompt=20, hash_ids=(9, 8, 7)),
    request(1, prompt=20, hash_ids=(1, 8, 7)),
    request(2, prompt=20, hash_ids=(1, 2, 7)),
    request(3, prompt=4, hash_ids=(1,)),  # at least one token is always computed
    request(4, prompt=20, hash_ids=(1, 2, 9)),
)


@pytest.mark.parametrize("name", ["longest-prefix", f"{__name__}:LongestPrefixOfFew"])
def test_the_longest_cached_prefix_goes_first(name: str) -> None:
    state = dataclasses.replace(STATE, cache=cache_with(1, 2, 3))
    assert [state.cached_tokens(r) for r in PROMPTS] == [0, 4, 8, 0, 8]
    assert taken(queue_of(name, *PROMPTS), state) == [2, 4, 1, 0, 3]
    assert taken(queue_of(name, *PROMPTS), dataclasses.replace(STATE, cache=cache_with())) == [0, 1, 2, 3, 4]


def test_a_users_policy_may_look_at_the_length_of_the_queue() -> None:
    crowded = dataclasses.replace(STATE, cache=cache_with(1, 2, 3), waiting=129)
    assert taken(queue_of(f"{__name__}:LongestPrefixOfFew", *PROMPTS), crowded) == [0, 1, 2, 3, 4]


def test_the_order_is_that_of_the_last_formation() -> None:
    queue = queue_of("longest-prefix", *PROMPTS[:3])
    queue.reorder(dataclasses.replace(STATE, cache=cache_with(9, 8)))
    first, second = queue.take(), queue.peek()
    assert (first.request.index, second and second.request.index) == (0, 1)
    queue.add(Sequence(PROMPTS[4], 0))
    assert taken(queue, dataclasses.replace(STATE, cache=cache_with(1, 2))) == [2, 4, 1]


def test_looking_at_the_cache_changes_nothing_in_it() -> None:
    cache = cache_with(1, 2, 3)
    before = [(b.owner, b.users, b.last_use) for b in cache.hash_blocks()]
    taken(queue_of("longest-prefix", *PROMPTS), dataclasses.replace(STATE, cache=cache))
    assert [(b.owner, b.users, b.last_use) for b in cache.hash_blocks()] == before


@pytest.mark.parametrize("name", ["fcfs", "longest-prefix"])
def test_a_preempted_sequence_goes_before_all_others_and_the_last_one_first(name: str) -> None:
    queue = queue_of(name, request(0), request(1))
    queue.prepend(Sequence(request(2), 0))
    queue.prepend(Sequence(request(3), 0))
    assert taken(queue) == [3, 2, 0, 1]


@pytest.mark.parametrize("name", [f"{__name__}:OtherEveryTime", f"{__name__}:MoodyKeys"])
def test_a_policy_that_changes_its_mind_can_not_part_what_is_shown_from_what_is_taken(name: str) -> None:
    queue = queue_of(name, *(request(i) for i in range(30)))
    seen = []
    while len(queue):
        queue.reorder(STATE)
        shown = queue.peek()
        assert shown is not None
        assert queue.take() is shown
        seen.append(shown.request.index)
    assert sorted(seen) == list(range(30))
    assert queue.peek() is None


@pytest.mark.parametrize("name", ["shortest", "longest-prefix"])
def test_one_that_leaves_is_taken_out_of_the_middle(name: str) -> None:
    queue = queue_of(name, *(request(i, prompt=9 - i) for i in range(4)))
    queue.reorder(dataclasses.replace(STATE, cache=cache_with(1)))
    late, preempted = Sequence(request(4, prompt=20), 0), Sequence(request(5), 0)
    queue.add(late)
    queue.prepend(preempted)
    queue.remove(late)
    queue.remove(preempted)
    assert sorted(taken(queue)) == [0, 1, 2, 3]
