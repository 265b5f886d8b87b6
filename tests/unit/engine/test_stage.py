"""Rules 1 and 7: order, service, gaps."""

import pytest

from stageline.engine.attribution import split_gap
from stageline.engine.causes import GAP_CAUSES
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.errors import KvOverdraw, LawBroken
from tests.unit.engine.builders import microbatch, plan


def stage(**settings: int) -> Stage:
    return Stage(Route(plan((0, 1, 0), **settings)), 0, 0, 0)


def causes(parts: tuple[int, ...]) -> dict[str, int]:
    return {cause: ns for cause, ns in zip(GAP_CAUSES, parts, strict=True) if ns}


def test_serves_at_the_later_of_arrival_and_free() -> None:
    s = stage()
    assert s.serve(0, 50, 40, microbatch(0)) == 150
    assert s.serve(0, 60, 50, microbatch(1)) == 250  # waits
    assert s.serve(2, 400, 390, microbatch(0)) == 500  # idles
    assert (s.busy_ns, s.free_ns, s.started_ns) == (300, 500, 50)


def test_every_cause_has_its_stretch_of_the_gap() -> None:
    dispatch, work_since, empty_since, credit_since = 160, 130, 110, 150
    gap = split_gap(100, 200, microbatch(stamps=(dispatch, work_since, empty_since, credit_since)), 185)
    assert causes(gap) == {
        "starved": 10, "empty": 20, "credit": 20, "kv_blocked": 10, "upstream": 25, "hop": 15,
    }  # fmt: skip


def test_stamps_outside_the_gap_take_nothing() -> None:
    early = microbatch(stamps=(50, 40, 40, 45))
    assert causes(split_gap(100, 200, early, 90)) == {"hop": 100}
    assert causes(split_gap(100, 200, early, 150)) == {"upstream": 50, "hop": 50}
    assert causes(split_gap(100, 200, microbatch(stamps=(500, 400, 300, 450)), 600)) == {"starved": 100}


def test_a_record_adds_up_and_names_fill_and_drain() -> None:
    s = stage()
    s.serve(0, 50, 40, microbatch(0))
    s.serve(2, 300, 290, microbatch(0))
    record = s.record(20, 1000)
    assert record.busy_ns + sum(record.idle_ns.values()) == record.window_ns == 980
    assert (record.idle_ns["fill"], record.idle_ns["drain"]) == (30, 600)
    assert (record.microbatches, record.visits) == (2, 2)


def test_a_stage_that_never_served_was_filling_all_the_time() -> None:
    record = stage().record(20, 1000)
    assert record.idle_ns["fill"] == record.window_ns


def test_a_window_that_does_not_hold_the_work_breaks_l6() -> None:
    s = stage()
    s.serve(0, 50, 40, microbatch(0))
    with pytest.raises(LawBroken, match="L6"):
        s.record(60, 1000)


def test_service_below_the_plans_minimum_is_a_broken_law() -> None:
    with pytest.raises(LawBroken, match="minimum of 100 ns"):
        stage().occupy(0, 0, 0, microbatch(), 99)


def test_kv_changes_once_at_the_first_visit() -> None:
    s = stage()
    granted = microbatch(grants=((7, 3, 1),))
    s.serve(0, 0, 0, granted)
    s.serve(2, 500, 490, granted)
    assert s.ledger.used_bytes == 3


def test_overdraw_names_both_ledgers() -> None:
    s = stage(kv_budget_bytes=5)
    with pytest.raises(KvOverdraw, match=r"owner 7 asks for 6 blocks .* 6 of 5 B"):
        s.serve(0, 0, 0, microbatch(grants=((7, 6, 1),)))
