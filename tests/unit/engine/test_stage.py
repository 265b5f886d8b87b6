"""Rules 1 and 7: order, service, gaps."""

from collections.abc import Sequence

import pytest

from stageline.cost.totals import BatchTotals
from stageline.engine.attribution import split_gap
from stageline.engine.causes import GAP_CAUSES
from stageline.engine.microbatch import Item, Microbatch, Trail
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.errors import KvOverdraw, LawBroken
from tests.unit.engine.builders import microbatch, plan


def stage(**settings: int) -> Stage:
    return Stage(Route(plan((0, 1, 0), **settings)), 0, 0, 0)


def causes(parts: Sequence[int]) -> dict[str, int]:
    return {cause: ns for cause, ns in zip(GAP_CAUSES, parts, strict=True) if ns}


def item(arrival_ns: int, prev_end_ns: int, carried: Microbatch) -> Item:
    return Item(arrival_ns, Trail(prev_end_ns), carried)


def test_serves_at_the_later_of_arrival_and_free() -> None:
    s = stage()
    assert s.serve(0, item(50, 40, microbatch(0))).prev_end_ns == 150
    assert s.serve(0, item(60, 50, microbatch(1))).prev_end_ns == 250  # waits
    assert s.serve(2, item(400, 390, microbatch(0))).prev_end_ns == 500  # idles
    assert (s.busy_ns, s.free_ns, s.started_ns) == (300, 500, 50)


def test_every_cause_has_its_stretch_of_the_gap() -> None:
    dispatch, work_since, empty_since, credit_since = 160, 130, 110, 150
    late = item(200, 185, microbatch(stamps=(dispatch, work_since, empty_since, credit_since)))
    assert causes(split_gap(100, late, (8, 6))) == {
        "starved": 10, "empty": 20, "credit": 20, "kv_blocked": 10,
        "upstream": 11, "uneven": 6, "chunk": 8, "hop": 15,
    }  # fmt: skip
    assert causes(split_gap(160, late, (18, 100))) == {
        "uneven": 7,
        "chunk": 18,
        "hop": 15,
    }  # chunks before slower stages
    assert causes(split_gap(160, late, (100, 100))) == {"chunk": 25, "hop": 15}


def test_stamps_outside_the_gap_take_nothing() -> None:
    early = microbatch(stamps=(50, 40, 40, 45))
    assert causes(split_gap(100, item(200, 90, early), (0, 0))) == {"hop": 100}
    assert causes(split_gap(100, item(200, 150, early), (0, 0))) == {"upstream": 50, "hop": 50}
    stamps = (500, 400, 300, 450)
    assert causes(split_gap(100, item(200, 600, microbatch(stamps=stamps)), (0, 0))) == {"starved": 100}


def test_the_example_of_rule_7() -> None:
    """Three stages, the second microbatch with a chunk, and each line of the tables in docs/rules.md."""
    services = [(100, 1000, 100, 100), (80, 800, 80, 80), (60, 600, 60, 60)]
    stages = [Stage(Route(plan((0, 1, 2), service_ns=1)), s, 0, 0) for s in range(3)]
    arrivals, passed, split = {}, {}, {}
    for number, dispatch in enumerate((0, 100, 1100, 2000)):
        totals = BatchTotals(prefill_sequences=1, prefill_tokens=9) if number == 1 else BatchTotals(decode_sequences=1)
        stamps = (dispatch, 0, 0, dispatch if number == 3 else 0)
        way = Item(dispatch, Trail(dispatch), Microbatch(number, totals, *stamps))
        for visit, s in enumerate(stages):
            before = list(s.gap_ns)
            trail = s.occupy(visit, way, services[visit][number])
            arrivals[number, visit] = way.arrival_ns
            split[number, visit] = causes([a - b for a, b in zip(s.gap_ns, before, strict=True)])
            passed[number, visit] = trail.chunk_wait_ns, trail.pace_ns
            way = Item(trail.prev_end_ns + 10, trail, way.microbatch)
    assert [arrivals[n, 2] for n in range(4)] == [200, 1920, 2000, 2200]
    assert {at: parts for at, parts in split.items() if parts} == {
        (1, 1): {"uneven": 10, "chunk": 900, "hop": 10},
        (1, 2): {"uneven": 30, "chunk": 1620, "hop": 10},
        (3, 0): {"credit": 800},
        (3, 1): {"credit": 10, "upstream": 80, "uneven": 20, "hop": 10},
    }
    assert [passed[n, v] for n in (1, 2, 3) for v in (0, 1)] == [
        (900, 100), (1620, 100), (0, 1000), (0, 800), (0, 100), (0, 100),
    ]  # fmt: skip


CHUNK = BatchTotals(prefill_sequences=1, prefill_tokens=9)
STEP = BatchTotals(decode_sequences=1)


@pytest.mark.parametrize(
    ("visit", "number", "totals", "wait"), [(0, 5, CHUNK, 250), (0, 5, STEP, 0), (2, 3, CHUNK, 0)]
)  # fmt: skip
def test_who_queues_behind_a_chunk_of_another_visit_is_late_by_it(
    visit: int, number: int, totals: BatchTotals, wait: int
) -> None:
    s = stage()
    s.occupy(visit, Item(450, Trail(440), Microbatch(number, totals, 0, 0, 0, 0)), 300)
    assert s.occupy(2, Item(500, Trail(480, 70), Microbatch(4, STEP, 0, 0, 0, 0)), 100).chunk_wait_ns == wait


def test_who_comes_back_explains_only_what_it_met_since() -> None:
    s, first = stage(), Microbatch(0, CHUNK, 0, 0, 0, 0)
    assert s.occupy(0, Item(1140, Trail(0), first), 1100) == Trail(2240, 1100)
    s.occupy(2, Item(5620, Trail(4480, 2200), first), 1100)
    assert causes(s.gap_ns) == {"upstream": 1140, "chunk": 1100, "hop": 1140}


def test_a_record_adds_up_and_names_fill_and_drain() -> None:
    s = stage()
    s.serve(0, item(50, 40, microbatch(0)))
    s.serve(2, item(300, 290, microbatch(0)))
    record = s.record(20, 1000)
    assert record.busy_ns + sum(record.idle_ns.values()) == record.window_ns == 980
    assert (record.idle_ns["fill"], record.idle_ns["drain"]) == (30, 600)
    assert (record.microbatches, record.visits) == (2, 2)


def test_a_stage_that_never_served_was_filling_all_the_time() -> None:
    record = stage().record(20, 1000)
    assert record.idle_ns["fill"] == record.window_ns


def test_a_window_that_does_not_hold_the_work_breaks_l6() -> None:
    s = stage()
    s.serve(0, item(50, 40, microbatch(0)))
    with pytest.raises(LawBroken, match="L6"):
        s.record(60, 1000)


def test_service_below_the_plans_minimum_is_a_broken_law() -> None:
    with pytest.raises(LawBroken, match="minimum of 100 ns"):
        stage().occupy(0, item(0, 0, microbatch()), 99)


def test_kv_changes_once_at_the_first_visit() -> None:
    s = stage()
    granted = microbatch(grants=((7, 3, 1, 0),))
    s.serve(0, item(0, 0, granted))
    s.serve(2, item(500, 490, granted))
    assert s.ledger.used_bytes == 3


def test_overdraw_names_both_ledgers() -> None:
    s = stage(kv_budget_bytes=5)
    with pytest.raises(KvOverdraw, match=r"owner 7 asks for 6 blocks .* 6 of 5 B"):
        s.serve(0, item(0, 0, microbatch(grants=((7, 6, 1, 0),))))
