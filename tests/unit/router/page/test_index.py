"""What the page says of what is served."""

from router.page.index import PageFacts, page_text
from stageline.engine.fleet import Fleet, Pool
from stageline.runtime.deployment import Deployment, Document
from stageline.testing import uniform_plan

ONE, TWO = uniform_plan(1, model="m"), uniform_plan(2, replicas=2, model="n")
DEVICE = ONE.device


def text(document: Document, *scheduling: str) -> str:
    served = Deployment(document)
    names = tuple(pool.route.plan.model for pool in served.fleet.pools)
    return page_text(
        PageFacts(
            deployment=served, version="1", names=names, dilation=1.0, scheduling=scheduling, routes=(), dashboards="",
            wants_key=False,
        )
    )  # fmt: skip


def test_a_fleet_says_what_each_pool_is() -> None:
    page = text(Fleet(pools=(Pool(name="a", plan=ONE), Pool(name="b", plan=TWO))), "first", "second")
    assert f"<title>m on 1 x {DEVICE}, n on 2 x 2 {DEVICE}" in page
    rows = [
        ("model", "m, n"),
        ("a: scheduling", "first"),
        ("b: scheduling", "second"),
        ("b: emulated hardware", f"2 x 2 {DEVICE}"),
    ]
    for name, value in rows:
        assert f"<tr><th>{name}</th><td>{value}</td></tr>" in page
    assert "<th>fleet</th>" in page


def test_a_plan_alone_needs_no_names_of_pools() -> None:
    page = text(ONE, "first")
    assert "<tr><th>scheduling</th><td>first</td></tr>" in page
    assert "<th>plan</th>" in page
