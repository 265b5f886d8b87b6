"""Speculative decoding (rule 9): its limits, its closed form, and what it may never change."""

from collections import Counter
from fractions import Fraction
from itertools import groupby, pairwise

import msgspec
import pytest

from stageline.cost.entries import Affine
from stageline.engine.speculation import PPM, expected_tokens
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from stageline.testing import Run, request, run_plan
from tests.property.checks import run_case, run_reference
from tests.reference.plans import pipeline
from tests.reference.strategies import numbered

PROMPT = 7


def ask(index: int = 0, output: int = 40, most: int | None = None, arrival_ns: int = 0) -> Request:
    return request(
        index, arrival_ns, prompt_tokens=PROMPT, output_tokens=output, max_output_tokens=most or output
    )  # fmt: skip


def run(plan: Plan, *requests: Request, seed: int = 3, paranoid: bool = True, **scheduling: object) -> Run:
    done = run_plan(plan, requests, seed=seed, paranoid=paranoid, **scheduling)
    assert [(r.index, r.output_tokens) for r in done.requests] == [(r.index, r.output_tokens) for r in requests]
    assert all(len(done.tokens_ns[r.index]) == r.output_tokens for r in requests)
    return done


def one_stage(**cost: int) -> Plan:
    """One stage with this cost, no network, KV without end."""
    plan = pipeline([1], microbatch=8)
    return msgspec.structs.replace(plan, costs=(Affine(**cost),))


def steps(tokens_ns: list[int]) -> list[int]:
    """Tokens that came at one instant, in order; the first is the prefill's."""
    return [len(list(together)) for _, together in groupby(tokens_ns)]


@pytest.mark.parametrize("number", range(40))
def test_settings_of_drafts_without_drafts_change_nothing(number: int) -> None:
    run_case("idle-drafts", "plain", number)


@pytest.mark.parametrize("kv", ["reserve", "grow"])
def test_drafts_that_are_never_right_and_cost_nothing_change_no_time(kv: str) -> None:
    """Many requests on a pipeline whose visits take the same time whatever they carry."""
    plan = pipeline([50, 90, 70], latency_ns=11, microbatch=3, credits_=3)
    requests = [ask(i, output=1 + 5 * i % 17, arrival_ns=40 * i) for i in range(12)]
    plain, seen = (run(plan, *requests, kv=kv, speculate=k, batched_tokens=1000) for k in (0, 4))
    assert seen.tokens_ns == plain.tokens_ns
    assert seen.requests == plain.requests
    assert seen.totals.speculation[0].drafted_tokens > 0 == seen.totals.speculation[0].accepted_tokens


@pytest.mark.parametrize("drafts", [1, 3, 8])
def test_verification_costs_what_its_tokens_its_context_and_its_rows_cost(drafts: int) -> None:
    """P = 0: every gap is one step of 1 + k tokens after a context that holds no rejected one; k shrinks at the end."""
    plan = one_stage(base_ns=1000, token_ns=10, kv_token_ns=1, sampled_ns=100)
    seen = run(plan, ask(output=20), speculate=drafts, kv="grow")
    gaps = [b - a for a, b in pairwise(seen.tokens_ns[0])]
    wanted = []
    for generated in range(1, 20):
        tokens = 1 + min(drafts, 20 - generated - 1)
        context = PROMPT + generated - 1 + tokens
        wanted.append(1000 + 10 * tokens + context + 100 * tokens)
    assert gaps == wanted


@pytest.mark.parametrize("drafts", [1, 2, 4, 7])
@pytest.mark.parametrize("output", [1, 2, 8, 41, 64])
def test_drafts_that_are_always_right_come_in_full_steps(drafts: int, output: int) -> None:
    seen = run(one_stage(base_ns=1000), ask(output=output), speculate=drafts, acceptance_ppm=PPM)
    decodes = -(-(output - 1) // (1 + drafts))
    assert seen.totals.microbatches == 1 + decodes
    full, rest = divmod(output - 1, 1 + drafts)
    assert steps(seen.tokens_ns[0]) == [1, *[1 + drafts] * full, *([rest] if rest else [])]


def test_a_draft_is_never_worth_more_than_what_is_left() -> None:
    """The router knows what may come, not what will: it drafts on, and the output still ends where it ends."""
    seen = run(one_stage(base_ns=1), ask(output=3, most=50), speculate=6, acceptance_ppm=PPM)
    assert steps(seen.tokens_ns[0]) == [1, 2]
    assert (seen.totals.speculation[0].drafted_tokens, seen.totals.speculation[0].accepted_tokens) == (6, 1)


@pytest.mark.parametrize(("drafts", "acceptance_ppm"), [(1, 500_000), (4, 700_000), (8, 900_000), (3, 50_000)])
def test_steps_yield_what_the_closed_form_says(drafts: int, acceptance_ppm: int) -> None:
    """(1 - P^(K+1)) / (1 - P) of Leviathan et al. over some ten thousand steps, within four standard errors."""
    p = acceptance_ppm / PPM
    requests = [ask(i, output=4000) for i in range(8)]
    seen = run(one_stage(base_ns=1), *requests, paranoid=False, speculate=drafts, acceptance_ppm=acceptance_ppm)
    yields = [n for times in seen.tokens_ns.values() for n in steps(times)[1:-1]]
    mean = sum(yields) / len(yields)
    variance = sum((n - mean) ** 2 for n in yields) / len(yields)
    closed = (1 - p ** (drafts + 1)) / (1 - p)
    assert abs(mean - closed) < 4 * (variance / len(yields)) ** 0.5
    assert abs(Fraction(*expected_tokens(drafts, acceptance_ppm)) - Fraction(closed)) < Fraction(1, 10**9)
    stats = seen.totals.speculation[0]
    assert abs(1 + stats.accepted_tokens / stats.steps - mean) < 0.01


def test_which_drafts_are_right_depends_on_the_text_alone() -> None:
    """Alone, in a crowd, on another replica, in another plan: the same steps."""
    requests = [ask(i, output=50, arrival_ns=13 * i) for i in range(9)]
    wide = msgspec.structs.replace(pipeline([30, 20], latency_ns=5, microbatch=2, credits_=4), replicas=3)
    drafting = {"speculate": 3, "acceptance_ppm": 600_000}
    crowd = run(wide, *requests, **drafting)
    for each in requests:
        alone = run(one_stage(base_ns=9), each, **drafting)
        assert steps(alone.tokens_ns[each.index]) == steps(crowd.tokens_ns[each.index])
    assert len({tuple(steps(times)) for times in crowd.tokens_ns.values()}) > 5
    reseeded = run(one_stage(base_ns=9), requests[0], seed=4, **drafting)
    assert steps(reseeded.tokens_ns[0]) != steps(crowd.tokens_ns[0])


def test_more_drafts_never_need_more_steps() -> None:
    """What is right does not depend on how much is drafted: free drafts can only help."""
    found = [
        run(one_stage(base_ns=1), ask(output=300), speculate=k, acceptance_ppm=800_000).totals.microbatches
        for k in (0, 1, 2, 4, 8, 16)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 3


def test_drafts_fit_the_token_budget() -> None:
    """Two members in five tokens: the first drafts two, the second one with what is left, until the first ends."""
    plan = one_stage(base_ns=0, token_ns=100)
    short = [msgspec.structs.replace(ask(i, 9), prompt_tokens=1) for i in range(2)]
    seen = run(plan, *short, batched_tokens=5, speculate=2, acceptance_ppm=PPM)
    assert steps(seen.tokens_ns[0]) == [1, 3, 3, 2]
    assert steps(seen.tokens_ns[1]) == [1, 2, 2, 3, 1]


def test_drafting_takes_as_long_as_the_longest_chain_of_a_microbatch() -> None:
    plan = one_stage(base_ns=1000)
    seen = run(plan, ask(0, 11), ask(1, 3), batched_tokens=100, speculate=4, draft_ns=7, overhead_ns=5)
    first = seen.tokens_ns[0]
    assert first[0] == seen.tokens_ns[1][0] == 1005  # prefill drafts nothing
    # P = 0: one token a step; nine drafts can still be wanted after the first token, then eight, ...
    assert [b - a for a, b in pairwise(first)] == [1005 + 7 * min(4, left) for left in range(9, -1, -1)]


def test_numbered_scenarios_meet_every_kind_of_step() -> None:
    """Without these the comparison with the reference would prove little."""
    met: Counter[str] = Counter()
    for number in range(60):
        engine, _ = run_reference(numbered("speculating", number))
        for s in engine.sequences:
            met["rejected"] += s.drafted_tokens - s.accepted_tokens
            met["accepted"] += s.accepted_tokens
            met["preempted"] += bool(s.preemptions and s.drafted_tokens)
            met["may produce more"] += s.request.max_output_tokens > s.request.output_tokens
            met["with a cache"] += bool(s.cached_tokens and s.accepted_tokens)
        met["drafting takes time"] += engine.scheduling.draft_ns > 0
        met["grow"] += engine.scheduling.kv == "grow"
        met["budget below a step"] += engine.replicas[0].token_limit <= engine.scheduling.speculate
    assert len(met) == 8 and min(met.values()) >= 3, met
