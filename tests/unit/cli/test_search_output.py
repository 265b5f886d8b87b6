"""What a search prints: the answer is a row of the table, and what binds is said of it."""

import pytest

from stageline.api.question import Question
from stageline.api.searching import SearchResult
from stageline.cli.search_output import print_search
from tests.unit.api.trial_builder import make_trial

QUESTION = Question(models=("m",), device_names=("d",), workload="poisson:rate=1,input=8,output=8", devices=(4, 8))


def shown(capsys: pytest.CaptureFixture[str], found: SearchResult, *, best_of_each: bool) -> str:
    print_search(found, QUESTION, best_of_each=best_of_each)
    return " ".join(capsys.readouterr().out.split())


def test_the_curve_shows_the_answer_and_what_binds_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    answer = make_trial("tp4 dp2", devices=8, slo_met=True, slo_margin=1.4, binds=("its links",))
    busier = make_trial(
        "dp8", devices=8, slo_met=True, slo_margin=1.1, goodput_requests_per_s=2.0, binds=("its memory",)
    )
    fewer = make_trial("tp4", devices=4, slo_met=False, attainment=0.5)
    text = shown(capsys, SearchResult((busier, answer, fewer), (), 3), best_of_each=True)
    assert "answer: tp4 dp2" in text and "binds (tp4 dp2): its links" in text
    assert "its memory" not in text


def test_without_an_objective_the_answer_is_shown_beside_the_front(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer has the most tokens per second; the other has more requests, and quicker ones."""
    answer = make_trial("tp2", output_tokens_per_s=9.0, goodput_requests_per_s=0.9, ttft_p99_s=0.9, binds=("KV",))
    front = make_trial("dp2", output_tokens_per_s=8.0)
    text = shown(capsys, SearchResult((front, answer), (), 2), best_of_each=False)
    assert "answer: tp2" in text and "binds (tp2): KV" in text
    assert "2 of 2 combinations run in full" in text and "--exhaustive" not in text


def test_settings_that_were_not_run_in_full_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, SearchResult((make_trial("tp2"),), (), 5000, 7), best_of_each=False)
    assert "1 of 5,000 combinations run in full, and 7 trials on the beginning of the workload" in text
    assert "left out: settings that did worse on the beginning of the workload (--exhaustive runs all)" in text
