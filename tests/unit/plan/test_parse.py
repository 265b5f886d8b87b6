"""Plan files: round trip, and errors that name the path of the wrong value."""

import json
from typing import Any

import pytest

from stageline.catalog.loader import Catalog
from stageline.errors import BadInput
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.parse import parse_plan

SHELF = Catalog()
PLAN = make_plan(
    SHELF.model("kimi-k3").spec, SHELF.device("wse-3t").device, PlanOptions(placement="by-kind", layer_bytes="nominal")
).plan


def changed(*path: str | int, to: Any) -> bytes:
    document = json.loads(PLAN.canonical())
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return json.dumps(document).encode()


def test_round_trip() -> None:
    again = parse_plan(PLAN.canonical(), "plan.json")
    assert again == PLAN
    assert again.digest() == PLAN.digest()


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("visits", 3, "stage"), 59, "$.visits[3].stage"),
        (("visits", 3, "stage"), -1, "$.visits[3].stage"),
        (("visits", 3, "stage"), "2", "$.visits[3].stage"),
        (("visits", 3, "cost"), 99, "$.visits[3].cost"),
        (("visits", 3, "min_service_ns"), 0, "$.visits[3].min_service_ns"),
        (("visits", 3, "min_service_ns"), 10**9, "$.visits[3].min_service_ns"),
        (("visits", 3, "layers"), [5], "$.visits[3].layers"),
        (("stages", 2, "kv_budget_bytes"), -1, "$.stages[2].kv_budget_bytes"),
        (("stages", 2, "kv_block_bytes"), 1 << 63, "$.stages[2].kv_block_bytes"),
        (("stages", 2, "devices"), 0, "$.stages[2].devices"),
        (("stages", 2, "layers"), [3, 4], "$.stages[2].layers"),
        (("links", 1, "bytes_per_s"), 0, "$.links[1].bytes_per_s"),
        (("links", 1, "latency_ns"), -1, "$.links[1].latency_ns"),
        (("links",), [], "$.links"),
        (("visits",), [], "$.visits"),
        (("stages",), [], "$.stages"),
        (("costs",), [], "$.costs"),
        (("costs", 0, "groups", 0, "layers"), 0, "$.costs[0].groups[0].layers"),
        (("costs", 0, "groups", 0, "overhead_ns"), -1.0, "$.costs[0].groups[0].overhead_ns"),
        (("costs", 1, "groups", 0, "experts", "top_k"), 5000, "$.costs[1].groups[0].experts"),
        (("costs", 0, "kind"), "magic", "magic"),
        (("defaults", "credits"), 0, "$.defaults.credits"),
        (("defaults", "microbatch"), 0, "$.defaults.microbatch"),
        (("block_tokens",), 0, "$.block_tokens"),
        (("replicas",), 0, "$.replicas"),
        (("replicas",), 10**9, "$.replicas"),
        (("format",), "stageline-plan/9", "$.format"),
        (("colour",), "red", "colour"),
    ],
)
def test_mistakes_are_named(path: tuple[str | int, ...], value: Any, named: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_plan(changed(*path, to=value), "plan.json")
    assert named in str(error.value)
    assert str(error.value).startswith("plan.json")


def test_a_stage_that_no_visit_uses() -> None:
    extra = json.loads(PLAN.canonical())["stages"] + [{"name": "idle", "layers": []}]
    with pytest.raises(BadInput, match=r"\$\.stages\[59\]"):
        parse_plan(changed("stages", to=extra), "plan.json")


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"[1,2]", b"\xff", b"{" * 9999, b'{"format": 3}'])
def test_not_a_plan(data: bytes) -> None:
    with pytest.raises(BadInput, match=r"plan\.json"):
        parse_plan(data, "plan.json")


def test_a_plan_may_not_name_code_to_import() -> None:
    with pytest.raises(BadInput, match=r"serving\.batching"):
        parse_plan(changed("serving", to={"engine": "x", "batching": "os:system"}), "plan")
