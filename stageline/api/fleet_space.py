"""The space of fleets in a search: prefill and decode in pools apart, each of equal replicas, on all devices together.

A design is how one replica of either pool is divided. How many replicas each pool has (xPyD: x prefill and y decode
replicas) is the first axis of its settings, by rising x.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec

from stageline.api.fleet_file import KvTransferTable, hand_over
from stageline.api.fleet_running import OF_THE_ROUTER, without_router
from stageline.api.fleet_text import FleetAnswer
from stageline.api.halving import PROBES
from stageline.api.question import DISAGGREGATE, Question
from stageline.api.scheduling import settle
from stageline.api.scoreboard import Try
from stageline.api.search_bounds import refused_apart
from stageline.api.search_space import Design, Space
from stageline.api.trials import Candidate
from stageline.api.variations import Point, spread
from stageline.api.workload_totals import WorkloadTotals
from stageline.engine.fleet import Fleet, Pool, Role
from stageline.engine.fleet_check import check_fleet
from stageline.engine.settings import Scheduling, plan_scheduling
from stageline.errors import BadInput, UsageError
from stageline.plan.replicas import with_replicas
from stageline.plan.schema import Plan
from stageline.plan.shapes import Shape, shapes
from stageline.report.slo import Slo

ROLES: tuple[Role, Role] = ("prefill", "decode")


class FleetDesign(NamedTuple):
    """One replica of the prefill pool and one of the decode pool, and every xPyD that takes all devices."""

    model: str
    device: str
    units: tuple[Shape, Shape]
    formats: Point
    replicas: tuple[tuple[int, int], ...]

    @property
    def devices(self) -> int:
        """Of both pools."""
        return sum(unit.devices * n for unit, n in zip(self.units, self.replicas[0], strict=True))


class FleetSpace:
    """Designs of fleets and their candidates. Plans are those of `space`, in other numbers of replicas."""

    def __init__(self, question: Question, space: Space, transfer: KvTransferTable) -> None:
        self._q, self._space, self._transfer = question, space, transfer
        self._hand_over = hand_over(transfer, DISAGGREGATE)
        self._ratios = max(1, max(question.devices) - 1)  # values of the first axis: no design has more

    def designs(self, model: str, device: str) -> Iterator[FleetDesign]:
        """Every pair of divisions whose plans exist, for the numbers of devices asked for, in every format."""
        for count in self._q.devices:
            reason = self._q.limits.refused_number(device, count)
            found = [] if reason else list(self._divided(model, device, count))
            if not found:
                name = self._space.prefixed(model, device, f"{count} devices in two pools")
                self._space.leave(name, reason or "a prefill and a decode replica do not fit on so many")
            yield from found

    def cost(self, design: FleetDesign) -> float:
        """Money per hour if known, else devices."""
        return self._space.expense(design.device, design.devices)

    def kind(self, design: FleetDesign) -> object:
        """Designs of one kind differ in the prefill pool, or in formats, only."""
        return design.model, design.device, design.units[1]

    def named(self, design: FleetDesign) -> str:
        """How both pools are divided, with formats, model and device where there are several."""
        name = " + ".join(f"{role} {unit.name}" for role, unit in zip(ROLES, design.units, strict=True))
        words = self._space.axes.format_words(design.formats)
        return self._space.prefixed(design.model, design.device, f"{name} {words}" if words else name)

    def size(self, design: FleetDesign) -> str:
        """How many devices, with model and device where there are several."""
        return self._space.prefixed(design.model, design.device, f"{design.devices} devices in two pools")

    def sizes(self) -> list[int]:
        """The sizes of the axes: of xPyD, then of the settings."""
        return [self._ratios, *self._space.sizes()]

    def combinations(self, design: FleetDesign) -> int:
        """How many settings of a design are worth telling apart."""
        return len(design.replicas) * self._space.settings_count(alone=False)

    def same(self, t: Try, designs: Sequence[FleetDesign]) -> Try:
        """The try that stands for it: where the axis has more values than there are xPyD, several mean one."""
        there = len(designs[t.design].replicas)
        at = self._ratio(t.point, there)
        return Try(t.design, (-(-at * self._ratios // there), *t.point[1:]))

    def candidate(
        self, design: FleetDesign, point: Point, requests: int | None, totals: WorkloadTotals, slo: Slo | None
    ) -> Candidate | str:
        """What to run, or why it is not worth it: it does not fit, or a bound forbids it."""
        made = self._fleet(design, point, slo)
        if isinstance(made, str):
            return made
        if slo is not None and self._q.every_request_counts and not self._transfer.local_prefill_tokens:
            forbidden = refused_apart((made.pools[0], made.pools[1]), totals, slo)
            if forbidden is not None:
                return forbidden
        pairs = zip(self._counts(design, point), "PD", design.units, strict=True)
        return Candidate(
            model=made.pools[0].plan.model, device=made.pools[0].plan.device, devices=design.devices, plan=made,
            name=" + ".join(f"{n}{letter} {unit.name}" for n, letter, unit in pairs),
            workload=self._q.workload, seed=self._q.seed, rate_scale=self._q.rate_scale, requests=requests,
            slo=self._q.slo, settings=self._space.axes.words(_whole(design, point)), window=self._q.window,
        )  # fmt: skip

    def answer(self, design: FleetDesign, point: Point, candidate: Candidate) -> FleetAnswer:
        """What a trial ran, as it was asked for."""
        whole = _whole(design, point)
        keywords = tuple(self._space.keywords(whole, unit) for unit in design.units)
        fleet, price = candidate.fleet(), self._q.limits.price(design.device)
        return FleetAnswer(design.model, design.device, fleet, design.units, keywords, self._transfer, candidate, price)

    def _divided(self, model: str, device: str, count: int) -> Iterator[FleetDesign]:
        ratios: dict[tuple[Shape, Shape], list[tuple[int, int]]] = {}
        for first in range(1, count):
            for one, other in product(*(self._pools(model, device, n) for n in (first, count - first))):
                units = (msgspec.structs.replace(one, replicas=1), msgspec.structs.replace(other, replicas=1))
                ratios.setdefault(units, []).append((one.replicas, other.replicas))
        for units, formats in product(ratios, self._space.format_points()):
            design = FleetDesign(model, device, units, formats, tuple(ratios[units]))
            if self._q.exhaustive or self._fits(design):
                yield design

    def _pools(self, model: str, device: str, count: int) -> list[Shape]:
        """The divisions of a pool that the limits allow; stock and budget are those of both."""
        inputs = self._space.inputs(model, device)
        limits = msgspec.structs.replace(self._q.limits, stock={}, budget=None)
        found = shapes(inputs.model, count, self._q.max_context_parallel)
        return [shape for shape in found if limits.refused(inputs.device, shape) is None]

    def _fits(self, design: FleetDesign) -> bool:
        """Whether both plans exist at any of the points at which every design is tried."""
        return any(not self._unfit(design, point) for point in spread(self._space.sizes(), PROBES))

    def _unfit(self, design: FleetDesign, point: Point) -> bool:
        for role, unit in zip(ROLES, design.units, strict=True):
            one = Design(design.model, design.device, unit, design.formats)
            plan = self._space.plan(one, (*design.formats, *point))
            if isinstance(plan, str):
                self._space.leave(f"{role} replica of {self._space.named(one)}", plan)
                return True
        return False

    def _fleet(self, design: FleetDesign, point: Point, slo: Slo | None) -> Fleet | str:
        whole = _whole(design, point)
        given = self._q.given | self._space.axes.of_run(whole)
        pools: list[Pool] = []
        for role, unit, n in zip(ROLES, design.units, self._counts(design, point), strict=True):
            plan = self._space.plan(Design(design.model, design.device, unit, design.formats), whole)
            if isinstance(plan, str):
                return f"its {role} pool: {plan}"
            plan = with_replicas(plan, n)
            try:
                pools.append(Pool(name=role, role=role, plan=plan, scheduling=self._scheduling(plan, given, slo)))
            except UsageError as error:
                return str(error)
        base = self._q.scheduling or plan_scheduling(pools[0].plan)
        router = {name: given.get(name, getattr(base, name)) for name in OF_THE_ROUTER}
        fleet = Fleet(pools=tuple(pools), hand_over=self._hand_over, **router)
        try:
            check_fleet(fleet, "the fleet")
        except BadInput as error:
            return str(error)
        return fleet

    def _scheduling(self, plan: Plan, given: dict[str, Any], slo: Slo | None) -> Scheduling:
        """Of a pool: all but what belongs to the router, which both pools share."""
        own = {name: value for name, value in given.items() if name not in OF_THE_ROUTER}
        return settle(without_router(self._q.scheduling or plan_scheduling(plan)), own, plan, slo=slo)

    def _counts(self, design: FleetDesign, point: Point) -> tuple[int, int]:
        return design.replicas[self._ratio(point, len(design.replicas))]

    def _ratio(self, point: Point, there: int) -> int:
        """Of so many xPyD the one that a value of the first axis stands for."""
        return point[0] * there // self._ratios


def _whole(design: FleetDesign, point: Point) -> Point:
    """A point of the axes of plans and runs: the design's formats, then the settings."""
    return (*design.formats, *point[1:])
