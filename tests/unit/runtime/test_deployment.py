"""What servers serve: a plan alone or a fleet, read from a file."""

from pathlib import Path

import msgspec
import pytest

from stageline.engine.fleet import Fleet, Pool
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput
from stageline.plan.schema import Serving
from stageline.runtime.deployment import Deployment, parse_deployment, read_deployment
from stageline.testing import uniform_plan

ONE, TWO = uniform_plan(1, model="m"), uniform_plan(2, replicas=2, model="n")
FLEET = Fleet(
    pools=(Pool(name="a", plan=ONE), Pool(name="b", plan=TWO, scheduling=Scheduling(credits=5))), balance="kv"
)


def test_the_replicas_of_a_fleet_are_numbered_through_its_pools() -> None:
    served = Deployment(FLEET)
    assert (served.kind, served.digest, served.replicas) == ("fleet", FLEET.digest(), 3)
    assert list(served.stages) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [served.plan_digest(r) for r in range(3)] == [ONE.digest(), TWO.digest(), TWO.digest()]
    assert [served.replica_name(r) for r in range(3)] == ["replica 0 (a)", "replica 1 (b)", "replica 2 (b)"]
    assert served.with_scheduling(Scheduling(credits=1)).pools[1].scheduling.credits == 5


def test_a_plan_alone_is_one_pool_without_a_name() -> None:
    alone, served = Deployment(ONE), Deployment(TWO)
    assert (alone.kind, alone.digest, alone.pool(0), alone.replica_name(0)) == ("plan", ONE.digest(), "", "")
    assert served.replica_name(1) == "replica 1"
    assert served.with_scheduling(Scheduling(credits=1)).pools[0].scheduling.credits == 1


def test_a_plan_alone_has_the_settings_of_its_serving_engine() -> None:
    plan = msgspec.structs.replace(ONE, serving=Serving(engine="e", kv="grow"))
    assert Deployment(plan).fleet.pools[0].scheduling.kv == "grow"


@pytest.mark.parametrize("document", [ONE, FLEET], ids=["plan", "fleet"])
def test_a_file_says_itself_what_it_is(document: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "served.json"
    path.write_bytes(document.canonical())
    assert read_deployment(path).digest == parse_deployment(document.canonical()).digest == document.digest()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a plan"),
        ('{"format": "stageline-fleet/1"}', r"fleet .*served.json: not a fleet|pools"),
        (FLEET.canonical().decode().replace('"stage":1', '"stage":9'), "pool b.*stage"),
    ],
    ids=["empty", "no pools", "a pool with a bad plan"],
)
def test_bad_files(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "served.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=reason):
        read_deployment(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can't be read"):
        read_deployment(tmp_path / "missing.json")
