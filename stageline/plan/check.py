"""Checks that every plan must pass before an engine runs it."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import UNSET

from stageline.cost.entries import CostEntry, Graphs, Roofline
from stageline.cost.measured_entries import MeasuredCost
from stageline.cost.service import min_service_ns
from stageline.errors import BadInput
from stageline.plan.check_measured import check_curve, check_measured, check_surface
from stageline.plan.schema import PLAN_FORMAT, Plan

MAX_INTEGER = 1 << 62  # sums of a few still fit a signed 64-bit field
MAX_FLOAT_NS = 1e9  # per token, sequence, row or expert: a second
MAX_FLOAT = {"floor_ns": 1e12, "step_ns": 1e12, "steps_ns": 1e12, "kv_threshold_tokens": 1e18} | {
    "latency_ns": 1e12,
    "decode_ns": 1e12,
    "eager_ns": 1e12,
    "overhead_ns": 1e12,
    "weights_ns": 1e12,
    "decode_pair_ns": 1e5,
    "prefill_pair_ns": 1e5,
    "kv_ns": 1e7,
}
MAX_NS = 10**15  # eleven days
MAX_BY_NAME = dict.fromkeys(("token_ns", "kv_token_ns", "sampled_ns"), 10**9)  # per token: sums fit 64 bits
MAX_BY_NAME |= {"window_tokens": 1 << 32} | dict.fromkeys(("token_flops", "pair_flops", "row_flops"), 1 << 62)
MAX_FACTOR = 1e6
MAX_TABLE = 1 << 20  # experts of one layer
MAX_STAGES, MAX_ROUTE_VISITS, MAX_REPLICAS = 65_536, 262_144, 65_536

AT_LEAST_ONE = frozenset(
    {
        "devices",
        "min_service_ns",
        "bytes_per_s",
        "flops_per_s",
        "microbatch",
        "credits",
        "batched_tokens",
        "block_tokens",
        "replicas",
    }
    | {"layers", "top_k", "context_ranks", "most_blocks", "read_tokens", "ranks"}
)


def check_plan(plan: Plan, place: str) -> None:
    """Raise BadInput naming the path of the first invalid value."""
    at = f"{place}: $"
    if plan.format != PLAN_FORMAT:
        raise BadInput(f"{at}.format", plan.format, f"expected {PLAN_FORMAT}", "make it again with stageline plan -o")
    _check_sizes(plan, at)
    _check_numbers(plan, at)
    for i, entry in enumerate(plan.costs):
        _check_cost(entry, f"{at}.costs[{i}]")
    _check_route(plan, at)
    _check_layers(plan, at)


def _check_sizes(plan: Plan, at: str) -> None:
    counts = {"stages": (len(plan.stages), MAX_STAGES), "visits": (len(plan.visits), MAX_ROUTE_VISITS)}
    counts["costs"] = (len(plan.costs), MAX_ROUTE_VISITS)
    for name, (count, most) in counts.items():
        if not 1 <= count <= most:
            raise BadInput(f"{at}.{name}", count, f"a plan has 1 to {most:,} of them")
    if len(plan.links) != len(plan.visits) + 1:
        reason = f"{len(plan.visits)} visits need {len(plan.visits) + 1} links: one into each, one back to the router"
        raise BadInput(f"{at}.links", len(plan.links), reason)
    if plan.replicas > MAX_REPLICAS:
        raise BadInput(f"{at}.replicas", plan.replicas, f"at most {MAX_REPLICAS:,}")


def _numbers(value: Any, path: str) -> Iterator[tuple[str, str, int | float]]:
    """(path, field name, number) of every number in a struct, except in `info`."""
    for name in value.__struct_fields__:
        child, at = getattr(value, name), f"{path}.{name}"
        if isinstance(child, bool) or name == "info":
            continue
        if isinstance(child, (int, float)):
            yield at, name, child
        elif isinstance(child, msgspec.Struct):
            yield from _numbers(child, at)
        elif isinstance(child, tuple) and child and isinstance(child[0], msgspec.Struct):
            for i, item in enumerate(child):
                yield from _numbers(item, f"{at}[{i}]")


def _check_numbers(plan: Plan, at: str) -> None:
    for path, name, value in _numbers(plan, at):
        if isinstance(value, float):
            top = MAX_FLOAT.get(name, MAX_FLOAT_NS)
            if not (math.isfinite(value) and 0 <= value <= top):
                raise BadInput(path, value, f"must lie between 0 and {top:,.0f}")
            continue
        least = int(name in AT_LEAST_ONE)
        most = MAX_BY_NAME.get(name, MAX_NS if name.endswith("_ns") else MAX_INTEGER)
        if not least <= value <= most:
            raise BadInput(path, value, f"must lie between {least} and {most:,}")


def _check_tables(entry: Roofline, at: str) -> None:
    """Measured times inside a roofline."""
    if entry.head and entry.head.curve:
        check_curve(entry.head.curve, f"{at}.head.curve")
    for i, group in enumerate(entry.groups):
        where = f"{at}.groups[{i}]"
        for j, curve in enumerate(group.work or ()):
            check_curve(curve, f"{where}.work[{j}]")
        if group.experts and group.experts.curve:
            check_curve(group.experts.curve, f"{where}.experts.curve")
        for j, collective in enumerate(group.collectives):
            if collective.curve:
                check_curve(collective.curve, f"{where}.collectives[{j}].curve")
        for name in ("attention", "linear"):
            for phase in ("decode", "prefill"):
                found = getattr(getattr(group, name), phase, None)
                if found and found.surface:
                    check_surface(found.surface, f"{where}.{name}.{phase}.surface")


def _check_cost(entry: CostEntry, at: str) -> None:
    if isinstance(entry, MeasuredCost):
        check_measured(entry, at)
    if not isinstance(entry, Roofline):
        return
    _check_tables(entry, at)
    if entry.graphs:
        _check_graphs(entry.graphs, f"{at}.graphs")
    if entry.ranks and entry.ranks > MAX_STAGES:
        raise BadInput(f"{at}.ranks", entry.ranks, f"at most {MAX_STAGES:,}")
    for i, group in enumerate(entry.groups):
        experts = group.experts
        if experts and not 1 <= experts.top_k <= experts.experts <= MAX_TABLE:
            reason = f"needs 1 <= top_k <= experts <= {MAX_TABLE:,}"
            raise BadInput(f"{at}.groups[{i}].experts", f"{experts.top_k} of {experts.experts}", reason)
        if experts and experts.spread is not UNSET and not 1 <= experts.spread <= experts.experts:
            reason = f"experts are spread over 1 to {experts.experts:,} ranks"
            raise BadInput(f"{at}.groups[{i}].experts.spread", experts.spread, reason)
        if experts and experts.imbalance:
            _check_factors(experts.imbalance, f"{at}.groups[{i}].experts.imbalance")
        if any(not (c.ways or c.curve) for c in group.collectives):
            raise BadInput(f"{at}.groups[{i}].collectives", None, "a collective needs at least one way")
        if group.layers > MAX_STAGES:
            raise BadInput(f"{at}.groups[{i}].layers", group.layers, f"at most {MAX_STAGES:,}")


def _check_graphs(graphs: Graphs, at: str) -> None:
    sizes = (0, *graphs.sizes)
    if len(sizes) > MAX_TABLE or sizes[-1] > MAX_TABLE or any(a >= b for a, b in pairwise(sizes)):
        raise BadInput(f"{at}.sizes", list(graphs.sizes)[:4], f"sizes must ascend from 1, up to {MAX_TABLE:,}")


def _check_factors(factors: tuple[float, ...], at: str) -> None:
    if len(factors) > MAX_TABLE or not all(math.isfinite(x) and 1 <= x <= MAX_FACTOR for x in factors):
        raise BadInput(at, list(factors)[:4], f"factors lie between 1 and {MAX_FACTOR:g}")
    if list(factors) != sorted(factors):
        raise BadInput(at, list(factors)[:4], "factors must ascend")


def _check_route(plan: Plan, at: str) -> None:
    floors = [min_service_ns(entry) for entry in plan.costs]
    for i, visit in enumerate(plan.visits):
        where = f"{at}.visits[{i}]"
        if visit.stage >= len(plan.stages):
            raise BadInput(f"{where}.stage", visit.stage, f"there are {len(plan.stages)} stages, counted from 0")
        if visit.cost >= len(plan.costs):
            raise BadInput(f"{where}.cost", visit.cost, f"there are {len(plan.costs)} cost entries, counted from 0")
        if visit.min_service_ns > floors[visit.cost]:
            reason = f"the smallest microbatch takes {floors[visit.cost]} ns with $.costs[{visit.cost}]"
            raise BadInput(f"{where}.min_service_ns", visit.min_service_ns, reason)
    unused = set(range(len(plan.stages))) - {visit.stage for visit in plan.visits}
    if unused:
        raise BadInput(
            f"{at}.stages[{min(unused)}]", plan.stages[min(unused)].name, "the route never visits this stage"
        )


def _check_layers(plan: Plan, at: str) -> None:
    """The visits pass every layer once, in order, on the stage that holds it. A plan may name no layers at all."""
    held: list[list[int]] = [[] for _ in plan.stages]
    expected = 0
    for i, visit in enumerate(plan.visits):
        for layer in visit.layers:
            if layer != expected:
                raise BadInput(f"{at}.visits[{i}].layers", layer, f"the next layer of the route is {expected}")
            expected += 1
        held[visit.stage] += visit.layers
    for i, stage in enumerate(plan.stages):
        if list(stage.layers) != held[i]:
            raise BadInput(f"{at}.stages[{i}].layers", list(stage.layers), f"its visits pass layers {held[i]}")
