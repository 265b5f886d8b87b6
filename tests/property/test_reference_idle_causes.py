"""The reference engine's idle causes on the worked examples of rule 7, number by number."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from stageline.testing import request
from tests.reference.attribution import by_stamps, by_timeline
from tests.reference.lateness import Late, Lateness
from tests.reference.ledger import Ledger
from tests.reference.plans import pipeline
from tests.reference.sequence import Member, Microbatch
from tests.reference.sequence import Sequence as Request
from tests.reference.stage import Gap, Services, Stage, Way


class Table(Services):
    """Service times by visit and microbatch number, as an example gives them."""

    def __init__(self, times_ns: dict[tuple[int, int], int]) -> None:
        self.times_ns = times_ns

    def service_ns(self, visit: int, microbatch: Microbatch) -> int:
        return self.times_ns[visit, microbatch.number]


@dataclass
class Example:
    """Stages that serve what they are told to, in the order in which they are told."""

    stage_of: Sequence[int]
    times_ns: dict[tuple[int, int], int]
    credit_since_ns: dict[int, int] = field(default_factory=dict)
    stages: list[Stage] = field(init=False)

    def __post_init__(self) -> None:
        plan = pipeline([1] * len(self.stage_of), stage_of=self.stage_of)
        services = Table(self.times_ns)
        self.stages = [Stage(plan, i, services, Ledger(s, 1)) for i, s in enumerate(plan.stages)]

    def microbatch(self, number: int, *, chunk: bool, dispatch_ns: int = 0) -> Microbatch:
        """One sequence, which decodes or prefills."""
        member = Member(Request(request(number), number, 0), not chunk, 1, 0, 1, 0, samples=True)
        credit_ns = self.credit_since_ns.get(number, 0)
        return Microbatch(0, number, (member,), (), (0, 0, 0), dispatch_ns, 0, 0, credit_ns)

    def serve(self, visit: int, arrival_ns: int, microbatch: Microbatch, way: Way) -> Way:
        return self.stages[self.stage_of[visit]].serve(visit, arrival_ns, microbatch, way)

    def split(self, gap: Gap) -> dict[str, int]:
        """What both ways say, which agree. The router's only reason is that no credit is free."""
        split = by_stamps(gap)
        assert by_timeline(gap, [(0, "credit")], Lateness(self.stages)) == split
        return split


def three_stages() -> tuple[Example, dict[tuple[int, int], Way]]:
    """Four microbatches, the second of which has a chunk; what each passes on, by number and visit."""
    decode_ns, chunk_ns = (100, 80, 60), (1_000, 800, 600)
    times_ns = {(v, n): (chunk_ns if n == 1 else decode_ns)[v] for v in range(3) for n in range(4)}
    example = Example((0, 1, 2), times_ns, {3: 2_000})
    ways: dict[tuple[int, int], Way] = {}
    for n, dispatch_ns in enumerate((0, 100, 1_100, 2_000)):
        microbatch = example.microbatch(n, chunk=n == 1, dispatch_ns=dispatch_ns)
        way = Way(dispatch_ns)
        for v in range(3):
            arrival_ns = way.prev_end_ns + (10 if v else 0)
            ways[n, v] = way = example.serve(v, arrival_ns, microbatch, way)
    return example, ways


def test_three_stages_serve_when_the_example_says() -> None:
    example, _ = three_stages()
    assert [[(s.start_ns, s.end_ns) for s in stage.log] for stage in example.stages] == [
        [(0, 100), (100, 1_100), (1_100, 1_200), (2_000, 2_100)],
        [(110, 190), (1_110, 1_910), (1_910, 1_990), (2_110, 2_190)],
        [(200, 260), (1_920, 2_520), (2_520, 2_580), (2_580, 2_640)],
    ]


@pytest.mark.parametrize(
    ("number", "visit", "chunk_wait_ns", "pace_ns"),
    [
        (1, 0, 900, 100),
        (1, 1, 1_620, 100),
        (2, 0, 0, 1_000),
        (2, 1, 0, 800),
        (3, 0, 0, 100),
        (3, 1, 0, 100),
    ],
)
def test_three_stages_pass_on(number: int, visit: int, chunk_wait_ns: int, pace_ns: int) -> None:
    way = three_stages()[1][number, visit]
    assert (way.chunk_wait_ns, way.pace_ns) == (chunk_wait_ns, pace_ns)


@pytest.mark.parametrize(
    ("number", "lags_ns"),
    [(1, [0, 20, 40]), (2, [0, 200, 200]), (3, [0, 20, 40])],
)
def test_three_stages_lag(number: int, lags_ns: list[int]) -> None:
    lateness = Lateness(three_stages()[0].stages)
    assert [lateness.reached(v, number).lag_ns for v in range(3)] == lags_ns


def test_three_stages_have_these_gaps_and_no_others() -> None:
    example, _ = three_stages()
    gaps = [gap for stage in example.stages for gap in stage.gaps]
    assert [(g.microbatch.number, g.visit, g.start_ns, g.end_ns, example.split(g)) for g in gaps] == [
        (3, 0, 1_200, 2_000, {"credit": 800}),
        (1, 1, 190, 1_110, {"uneven": 10, "chunk": 900, "hop": 10}),
        (3, 1, 1_990, 2_110, {"credit": 10, "upstream": 80, "uneven": 20, "hop": 10}),
        (1, 2, 260, 1_920, {"uneven": 30, "chunk": 1_620, "hop": 10}),
    ]


@pytest.mark.parametrize(
    ("other", "other_visit", "chunk", "waits_ns"),
    [(5, 0, True, 250), (5, 0, False, 0), (3, 2, True, 0)],
    ids=["a chunk at an earlier visit", "no chunk", "the same visit"],
)
def test_what_waits_behind_a_chunk_of_another_visit(other: int, other_visit: int, chunk: bool, waits_ns: int) -> None:
    """Microbatch 4 reaches visit 2 at 500, on a stage that serves from 450 to 750."""
    example = Example((0, 1, 0), {(other_visit, other): 300, (2, 4): 7})
    example.serve(other_visit, 450, example.microbatch(other, chunk=chunk), Way(0))
    way = example.serve(2, 500, example.microbatch(4, chunk=False), Way(400, chunk_wait_ns=123))
    assert way.chunk_wait_ns == waits_ns


def test_a_microbatch_that_comes_back_explains_only_what_it_met_since_it_left() -> None:
    example = Example((0, 1, 0), {(v, 0): 1_100 for v in range(3)})
    microbatch, way, passed_on_ns = example.microbatch(0, chunk=True), Way(0), []
    for v in range(3):
        way = example.serve(v, way.prev_end_ns + 1_140, microbatch, way)
        passed_on_ns.append(way.chunk_wait_ns)
    assert passed_on_ns[:2] == [1_100, 2_200]
    (gap,) = [gap for stage in example.stages for gap in stage.gaps]
    assert (gap.start_ns, gap.end_ns) == (2_240, 5_620)
    assert Lateness(example.stages).of_gap(gap) == Late(lag_ns=0, chunk_ns=1_100)
    assert example.split(gap) == {"upstream": 1_140, "chunk": 1_100, "hop": 1_140}
