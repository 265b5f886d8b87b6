"""Identities of answers in traces: what the next turn's prompt tells. Blocks of 4 tokens."""

from unittest import mock

from stageline.workload import answers
from stageline.workload.answers import AnswerBlocks
from stageline.workload.rows import TraceRow


def row(prompt: int, output: int, *ids: int, chat: str = "c") -> TraceRow:
    return TraceRow(0, prompt, output, conversation=chat, hash_ids=ids)


def test_the_next_prompt_gets_the_names_of_the_answer() -> None:
    """6 + 7 tokens: the answer completes blocks 1 and 2, which all later prompts call 21 and 22."""
    named = AnswerBlocks(4).named
    first = named(row(6, 7, 10, 11))
    assert first.hash_ids == (10, 11)
    assert len(set(first.output_hash_ids)) == 2
    second = named(row(17, 3, 10, 21, 22, 23, 24))
    assert second.hash_ids == (10, *first.output_hash_ids, 23, 24)
    third = named(row(24, 1, 10, 21, 22, 23, 34, 35))
    assert third.hash_ids == (10, *first.output_hash_ids, 23, *second.output_hash_ids, 35)


def test_prompts_that_do_not_repeat_the_answer_keep_their_names() -> None:
    for other in (row(17, 3, 99, 21, 22, 23), row(12, 3, 10, 21, 22), row(17, 3, 10, 21, 22, 23, chat="d")):
        named = AnswerBlocks(4).named
        named(row(6, 7, 10, 11))
        assert named(other).hash_ids == other.hash_ids
    bare = row(6, 7)
    assert AnswerBlocks(4).named(bare) is bare


def test_branches_go_on_from_their_own_turn() -> None:
    named = AnswerBlocks(4).named
    root = named(row(4, 5, 10), "a")
    left = named(row(12, 5, 10, 21, 22), "b", "a")
    right = named(row(12, 5, 10, 31, 32), "c", "b")
    assert left.hash_ids == (10, *root.output_hash_ids, 22)
    assert right.hash_ids == (10, 31, 32)


def test_the_oldest_conversations_are_forgotten_first() -> None:
    with mock.patch.object(answers, "MAX_NAMES", 8):
        blocks = AnswerBlocks(4)
        for number in range(100):
            blocks.named(row(4, 16, number, chat=str(number)))
        assert list(blocks._conversations) == ["98", "99"]
