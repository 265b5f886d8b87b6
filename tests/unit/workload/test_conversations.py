"""Conversations with shared system prompts: prompts, arrivals and block identities."""

from fractions import Fraction
from itertools import pairwise

import pytest

from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.workload import open_workload
from stageline.workload.conversations import RateStage, staged_times
from tests.draining import drain

SMALL = "sessions:system_prompts=2,users=3,system=40,question=7,output=10,turns=3,rate=5"


def sent(spec: str, **options: int) -> list[Request]:
    return drain(open_workload(spec, **options))


def test_every_turn_sends_the_whole_conversation() -> None:
    mine = [r for r in sent(SMALL, requests=60) if r.conversation.startswith("user-4/")]
    assert [r.prompt_tokens for r in mine[:7]] == [47, 64, 81, 47, 64, 81, 47]
    assert [r.conversation for r in mine[:7]] == ["user-4/0"] * 3 + ["user-4/1"] * 3 + ["user-4/2"]
    assert {(r.output_tokens, r.max_output_tokens) for r in mine} == {(10, 10)}


def test_users_take_turns() -> None:
    conversations = [r.conversation for r in sent(SMALL, requests=12)]
    assert conversations == [f"user-{u}/0" for u in range(6)] * 2


@pytest.mark.parametrize("block", [1, 5, 16, 64])
def test_equal_identities_mean_equal_texts(block: int) -> None:
    """A full block's identity stands for its text and everything before it, one to one."""
    spec = f"{SMALL},block={block}".replace("question=7", "question=uniform(1,30)")
    texts: dict[tuple[int, ...], tuple[object, ...]] = {}
    chats: dict[str, list[object]] = {}
    for r in sent(spec, requests=150, seed=3):
        user = int(r.conversation.partition("/")[0].removeprefix("user-"))
        chat = chats.setdefault(r.conversation, [("system", user % 2, i) for i in range(40)])
        chat += [(r.conversation, i) for i in range(len(chat), r.prompt_tokens)]
        assert len(r.hash_ids) == -(-r.prompt_tokens // block)
        for n in range(1, r.prompt_tokens // block + 1):
            text = tuple(chat[: n * block])
            assert texts.setdefault(r.hash_ids[:n], text) == text
        chat += [(r.conversation, i) for i in range(len(chat), r.prompt_tokens + r.output_tokens)]
    assert len(set(texts.values())) == len(texts)


def test_the_block_size_is_that_of_the_option() -> None:
    assert open_workload(SMALL).hash_block_tokens == 16
    assert open_workload(f"{SMALL},block=512").hash_block_tokens == 512


def test_lengths_depend_on_user_and_turn_only() -> None:
    spec = "sessions:users=2,system=uniform(1,99),question=uniform(1,99),output=uniform(1,99),rate=5,turns=2"
    few, many = sent(spec, requests=5), sent(spec, requests=50)
    assert many[:5] == few
    assert len({r.prompt_tokens for r in many}) > 20


def test_stages_of_load_follow_each_other() -> None:
    times = [r.arrival_ns / 1e9 for r in sent(f"{SMALL.replace('rate=5', 'rate=2.5+6')},seconds=600")]
    first, second = [t for t in times if t < 600], [t for t in times if t >= 600]
    assert len(first) == pytest.approx(1500, abs=3 * 1500**0.5)
    assert len(second) == pytest.approx(3600, abs=3 * 3600**0.5)
    assert times == sorted(times)
    assert max(times) < 1200


def test_each_stage_has_its_own_length_and_its_own_draws() -> None:
    stages = [RateStage(Fraction(1), Fraction(100)), RateStage(Fraction(1), Fraction(50))]
    times = list(staged_times(stages, 1))
    first, second = [t for t in times if t < 100 * 10**9], [t - 100 * 10**9 for t in times if t >= 100 * 10**9]
    assert max(second) < 50 * 10**9
    assert first[: len(second)] != second


def test_without_seconds_the_number_of_requests_ends_it() -> None:
    assert len(sent(SMALL)) == 1000
    assert len(sent(f"{SMALL},requests=7")) == 7
    assert len(sent(f"{SMALL},seconds=1", requests=3)) == 3


def test_rate_scale_shortens_the_stages() -> None:
    slow, fast = sent(f"{SMALL},seconds=20"), drain(open_workload(f"{SMALL},seconds=20", rate_scale="4"))
    assert [r.arrival_ns for r in fast] == [round(Fraction(r.arrival_ns, 4)) for r in slow]


def test_the_stream_never_changes() -> None:
    """Pinned values: another machine, Python or refactoring must give these."""
    last = sent(SMALL, requests=8, seed=7)[-1]
    assert (last.arrival_ns, last.prompt_tokens, last.hash_ids) == PINNED


PINNED = (2542923738, 64, (8186266485113087152, 8469930214521068394, 2109495986814823486, 5702340948778798977))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("sessions:users=2", "sessions needs rate="),
        ("sessions:rate=1+2", "several rates"),
        ("sessions:rate=1+2,seconds=1+2+3", "3 durations for 2 rates"),
        ("sessions:rate=1+x,seconds=1", "rate: not a positive number"),
        ("sessions:rate=1,seconds=0", "seconds: not a positive number"),
        ("sessions:rate=1,turns=0", "turns: not a positive whole number"),
        ("sessions:rate=1,system=0", "system: not a positive whole number"),
        ("sessions:rate=1,input=5", "unknown option"),
        ("sessions:rate=9,users=1,system=1,question=16777216", r"request 0 has 16777217 tokens, .* 1048576 blocks"),
        ("sessions:rate=9,users=1,block=4096,question=2147483647", "request 0 has 2147484671 tokens"),
    ],
)
def test_bad_specs_name_the_option(spec: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        sent(spec)


@pytest.mark.parametrize("block", [1, 5, 16])
def test_the_next_turn_repeats_the_identities_of_the_answer(block: int) -> None:
    mine = [r for r in sent(f"{SMALL},block={block}", requests=18) if r.conversation == "user-4/0"]
    for turn, after in pairwise(mine):
        first, end = turn.prompt_tokens // block, (turn.prompt_tokens + turn.output_tokens) // block
        assert turn.output_hash_ids == after.hash_ids[first:end]
