"""The recipe for a metric with its panel."""

from tests.recipes.scratch import Scratch, named

ENTRY = """\
STAGE_KV_PEAK = MetricSpec(
    name="stageline_stage_kv_peak_bytes", kind="gauge", help="The ledger's peak.", labels=_PLACE, by=_STAGE
)
"""
VALUE = "            (names.STAGE_KV_PEAK, stage.ledger.peak_bytes if stage else 0),\n"
PANEL = '        lines("KV peak", Query(f"max(stageline_stage_kv_peak_bytes{R})"), unit="bytes"),\n'


def test_a_metric(scratch: Scratch) -> None:
    scratch.insert("stageline/runtime/metric_names.py", "STAGE_CLOCK = ", ENTRY)
    scratch.insert("stage_server/metrics.py", "            (names.STAGE_CLOCK, ", VALUE)
    scratch.insert("deploy/grafana/builder/dashboards.py", '        words("Load", ', PANEL)
    scratch.run("scripts/metrics-page")
    scratch.run("scripts/dashboards")
    changed = scratch.changed()
    assert changed <= named("A metric", BOARD="pipeline")
    assert len(changed) == 5
    scratch.check(
        "tests/integration/deploy/test_dashboards.py",
        "tests/cluster/test_metrics.py",
        "-k", "every_query_asks or committed_dashboards or well_formed or catalogue_says or page_is_fresh",
    )  # fmt: skip
