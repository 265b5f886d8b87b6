"""KV policies: what a sequence holds, and when it is allocated (rule 6). Blocks of 4 tokens."""

import pytest

from stageline.engine.forming import Forming
from stageline.engine.mirror import KvMirror
from stageline.engine.policies.kv import KV, KvPolicy
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from tests.unit.engine.builders import plan

REQUEST = Request(index=7, arrival_ns=0, prompt_tokens=6, output_tokens=3, max_output_tokens=7)


def policy(name: str, blocks: int) -> KvPolicy:
    return KV.find(Scheduling(kv=name))(KvMirror(plan(kv_budget_bytes=blocks)))


class Preemptor:
    """Preempts the sequences that it is given, one after the other."""

    def __init__(self, mirror: KvMirror, *victims: Sequence) -> None:
        self.mirror, self.victims = mirror, list(victims)

    def victim(self, grower: Sequence) -> Sequence | None:
        """The next one."""
        return self.victims[0] if self.victims else None

    def preempt(self, sequence: Sequence) -> None:
        """Frees its blocks."""
        self.victims.remove(sequence)
        self.mirror.free(sequence.blocks, 1)


@pytest.mark.parametrize(("name", "blocks"), [("reserve", 3), ("grow", 2)])
def test_what_admission_allocates(name: str, blocks: int) -> None:
    """Under `reserve` 6 + 7 - 1 = 12 tokens: the thirteenth is sampled last and needs no block of its own."""
    kv, forming, sequence = policy(name, 4), Forming(9, 9), Sequence(REQUEST, 0)
    assert kv.max_tokens(REQUEST) == 12
    assert kv.admit(sequence, 5, forming)
    assert (sequence.blocks, kv.mirror.blocks, kv.mirror.states) == (blocks, blocks, 1)
    assert forming.grants == [(7, blocks, 1, 0)]


def test_without_room_nothing_is_allocated_and_a_refusal_is_counted() -> None:
    kv, forming, sequence = policy("reserve", 2), Forming(9, 9), Sequence(REQUEST, 0)
    assert not kv.admit(sequence, 5, forming)
    assert (sequence.blocks, kv.mirror.blocks, forming.grants) == (0, 0, [])
    assert kv.mirror.refusals == [1, 0]


def test_grow_allocates_when_a_block_is_full_and_preempts_for_it() -> None:
    kv, forming = policy("grow", 3), Forming(9, 9)
    first, second = Sequence(REQUEST, 0), Sequence(REQUEST, 0)
    assert kv.admit(first, 6, forming)
    assert kv.admit(second, 4, forming)
    first.written_tokens = 6
    preemptor = Preemptor(kv.mirror, second)
    assert kv.allocate_slots(preemptor, first, 2, forming)
    assert (first.blocks, kv.mirror.blocks, preemptor.victims) == (2, 3, [second])
    first.written_tokens = 8
    assert kv.allocate_slots(preemptor, first, 1, forming)
    assert (first.blocks, kv.mirror.blocks, preemptor.victims) == (3, 3, [])
    first.written_tokens = 12
    assert not kv.allocate_slots(preemptor, first, 1, forming)


def test_reserve_needs_nothing_more() -> None:
    kv, forming, sequence = policy("reserve", 4), Forming(9, 9), Sequence(REQUEST, 0)
    assert kv.admit(sequence, 5, forming)
    sequence.written_tokens = 12
    assert kv.allocate_slots(Preemptor(kv.mirror), sequence, 1, forming)
    assert len(forming.grants) == 1
