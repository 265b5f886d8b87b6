"""The space of fleets in a search: every ratio has one value of its axis, and each takes all devices."""

from stageline.api.fleet_file import parse_transfer
from stageline.api.fleet_space import FleetSpace
from stageline.api.question import Question
from stageline.api.scoreboard import Try
from stageline.api.search_space import Space
from stageline.api.workload_totals import workload_totals


def test_every_ratio_is_one_value_of_its_axis() -> None:
    """Six devices: a pair of tp1 has five ratios, tp2 with tp2 two, tp4 with tp2 one."""
    transfer = parse_transfer("bandwidth=50GB/s", "transfer")
    question = Question(
        models=("llama-3.1-8b",), device_names=("h100-sxm",), devices=(6,), disaggregate=transfer,
        workload="poisson:rate=1,input=64,output=8,requests=4",
    )  # fmt: skip
    plans, totals = Space(question), workload_totals(question.open())
    space = FleetSpace(question, plans, transfer)
    designs = list(space.designs("llama-3.1-8b", "h100-sxm"))
    found: dict[str, list[tuple[int, int]]] = {}
    for number, design in enumerate(designs):
        stand_ins = dict.fromkeys(space.same(Try(number, (value,)), designs) for value in range(space.sizes()[0]))
        assert len(stand_ins) == len(design.replicas) == space.combinations(design)
        assert all(space.same(t, designs) == t for t in stand_ins)
        made = [space.candidate(design, t.point, 4, totals, None) for t in stand_ins]
        fleets = [c.fleet() for c in made if not isinstance(c, str)]
        replicas = [tuple(pool.plan.replicas for pool in fleet.pools) for fleet in fleets]
        assert replicas == sorted(design.replicas)
        assert {sum(pool.plan.devices for pool in fleet.pools) for fleet in fleets} == {6}
        found[space.named(design)] = list(design.replicas)
    assert found["prefill tp1 + decode tp1"] == [(1, 5), (2, 4), (3, 3), (4, 2), (5, 1)]
    assert found["prefill tp2 + decode tp2"] == [(1, 2), (2, 1)]
    assert found["prefill tp4 + decode tp2"] == [(1, 1)]
    assert "prefill tp4 + decode tp4" not in found
