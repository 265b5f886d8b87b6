"""What a microbatch counts of its members (rules 3 and 9)."""

from stageline.cost.totals import BatchTotals
from stageline.engine.forming import Forming
from stageline.engine.sequence import Sequence
from stageline.engine.types import Request


def sequence(written: int, todo: int = 0) -> Sequence:
    made = Sequence(Request(index=0, arrival_ns=0, prompt_tokens=9, output_tokens=9, max_output_tokens=9), 0)
    made.written_tokens, made.todo_tokens = written, todo
    return made


def test_a_step_without_drafts_is_one_token_against_its_context() -> None:
    forming = Forming(4, 100)
    forming.add_decode(sequence(9))
    assert forming.seal(0, 0, (0, 0, 0, 0), ()).totals == BatchTotals(1, 1, 10, 10, sampled=1)
    assert (forming.max_drafts, forming.tokens_left) == (0, 99)


def test_every_verified_token_is_a_query_against_all_before_it_and_itself() -> None:
    forming = Forming(4, 100)
    first, second = sequence(20), sequence(7)
    forming.add_verification(first, 4)
    forming.add_verification(second, 2)
    forming.add_prefill(sequence(0, todo=5), 5)
    totals = forming.seal(0, 0, (0, 0, 0, 0), ()).totals
    pairs = (21 + 22 + 23 + 24) + (8 + 9)
    assert totals == BatchTotals(2, 6, 24 + 9, pairs, 1, 5, 5, 15, sampled=7)
    assert (first.written_tokens, second.written_tokens) == (24, 9)
    assert (forming.max_drafts, forming.draft_tokens, forming.tokens_left) == (3, 4, 89)
    assert [rows for _, rows in forming.members] == [4, 2, 1]
