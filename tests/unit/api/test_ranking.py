"""Which trial of a search is the answer, and which stand beside it."""

import pytest

from stageline.api.ranking import best_by_devices, cheapest, runners_up
from tests.unit.api.trial_builder import make_trial


def test_every_number_of_devices_has_what_would_be_its_answer() -> None:
    """More goodput is no answer: of those that meet the objective, the one with most room is."""
    roomy = make_trial("tp4 dp2", devices=8, slo_met=True, slo_margin=1.4, goodput_requests_per_s=11.0)
    fast = make_trial("dp8", devices=8, slo_met=True, slo_margin=1.1, goodput_requests_per_s=12.0)
    missed = make_trial("tp4", devices=4, slo_met=False, attainment=0.8, goodput_requests_per_s=9.0)
    trials = [fast, roomy, missed, make_trial("dp4", devices=4, failure="broke")]
    assert best_by_devices(trials) == [missed, roomy]
    assert cheapest(trials) == roomy


@pytest.mark.parametrize("met", [True, False, None])
def test_the_answer_is_among_the_best_by_devices(met: bool | None) -> None:
    trials = [
        make_trial(f"{name} {devices}", devices=devices, slo_met=met, slo_margin=room, attainment=room / 2)
        for name, devices, room in [("a", 2, 1.1), ("b", 2, 1.3), ("c", 3, 1.2), ("d", 3, 1.5)]
    ]
    assert cheapest(trials) in best_by_devices(trials)


def test_runners_up_are_other_divisions_of_as_many_devices() -> None:
    best = make_trial("tp2", devices=2, slo_met=True, slo_margin=1.5)
    other = make_trial("dp2", devices=2, slo_met=True, slo_margin=1.2)
    trials = [make_trial("dp2", devices=2, slo_met=False), best, make_trial("tp4", devices=4), other]
    assert runners_up(trials, best) == [other]
