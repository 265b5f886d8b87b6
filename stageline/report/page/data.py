"""Everything that a page shows, read from a run directory."""

from pathlib import Path

import msgspec

from stageline.engine.causes import TABLE
from stageline.engine.types import RequestRecord, StageRecord
from stageline.errors import BadInput
from stageline.plan.schema import Plan
from stageline.report.advice import advise
from stageline.report.page.columns import Column, Packer
from stageline.report.page.group_sizes import GroupSizes
from stageline.report.page.lanes import CATEGORIES, Lanes
from stageline.report.page.requests import QUANTILES, WaterfallRows, pack_requests
from stageline.report.rundir import (
    EVENTS_FILE,
    RERUN,
    read_events,
    read_parts,
    read_requests,
    read_run_pools,
    read_stages,
    read_summary,
)
from stageline.report.settings import run_label
from stageline.report.statistics import REQUEST_OUTCOMES
from stageline.report.summary import Advice, Summary
from stageline.report.text_report import tuning_lines
from stageline.report.tuned import read_tune


class PlanStage(msgspec.Struct, frozen=True):
    """What a stage holds."""

    name: str
    layers: int
    devices: int
    device: str
    weight_bytes: int
    kv_budget_bytes: int


class Window(msgspec.Struct, frozen=True):
    """The run's window and how the page slices it."""

    start_ns: int
    length_ns: int
    slice_ns: int
    slices: int
    exact_until_ns: int  # since the start of the window; services are kept one by one up to here
    services: int
    exact_services: int


class PageData(msgspec.Struct, frozen=True, kw_only=True):
    """The readable half of a page's data; `columns` says where the packed half lies in `blob`."""

    summary: Summary
    label: str  # of plan and serving engine; "" if the run does not say
    stages: list[StageRecord]
    plan_stages: list[PlanStage]  # of all pools, one replica of each
    stage_numbers: list[int]  # of `stages`, into `plan_stages`
    replicas: list[str]  # names of replicas; empty for a plan alone
    window: Window
    events: bool
    groups: int  # of replica 0, shown over time; 0 without events, or when there are too many to show
    advice: list[Advice]
    tuning: list[str]  # what was measured, or how to
    waterfall: WaterfallRows
    categories: tuple[str, ...]
    meanings: dict[str, str]  # of the categories
    outcomes: tuple[str, ...]
    quantiles: int
    columns: dict[str, Column]


def page_data(directory: Path) -> tuple[PageData, str]:
    """The data and its blob. BadInput when the run is incomplete or damaged."""
    summary, stages, pools = read_summary(directory), read_stages(directory), read_run_pools(directory)
    if not summary.complete or not stages:
        raise BadInput(str(directory), None, "the run broke off and has no stages", RERUN)
    requests = list(read_requests(directory))
    lanes = Lanes(stages, window_start_ns(requests))
    events = (directory / EVENTS_FILE).exists()
    packer, groups = Packer(), 0
    if events:
        sizes = GroupSizes(read_parts(directory), len(pools.plans[0].visits) - 1)
        lanes.read(sizes.watch(read_events(directory)))
        lanes.pack(packer)
        groups = sizes.pack(lanes.bins, packer)
    shown = pack_requests(requests, lanes.bins, packer)
    data = PageData(
        summary=summary,
        label=summary.topology.fleet or run_label(summary.plan, summary.settings),
        stages=stages,
        plan_stages=[stage for pool in pools.pools for stage in _plan_stages(pool.plan)],
        stage_numbers=[pools.stage_number(record) for record in stages],
        replicas=[pools.replica_name(replica) for replica in range(pools.replicas)] if pools.named else [],
        window=_window(lanes),
        events=events,
        groups=groups,
        advice=advise(pools, summary, stages),
        tuning=tuning_lines(summary, directory, read_tune(directory, summary.digest)),
        waterfall=shown,
        categories=CATEGORIES,
        meanings={"busy": "serving", **{cause.name: cause.meaning for cause in TABLE}},
        outcomes=REQUEST_OUTCOMES,
        quantiles=QUANTILES,
        columns=packer.columns,
    )
    return data, packer.blob()


def window_start_ns(requests: list[RequestRecord]) -> int:
    """The window of a run begins with its first arrival."""
    return min((r.arrival_ns for r in requests), default=0)


def _window(lanes: Lanes) -> Window:
    bins = lanes.bins
    return Window(
        bins.start_ns,
        lanes.end_ns - bins.start_ns,
        bins.width_ns,
        bins.count,
        lanes.exact_until_ns - bins.start_ns,
        lanes.services,
        lanes.exact_services,
    )


def _plan_stages(plan: Plan) -> list[PlanStage]:
    return [
        PlanStage(s.name, len(s.layers), s.devices, s.device or plan.device, s.weight_bytes, s.kv_budget_bytes)
        for s in plan.stages
    ]
