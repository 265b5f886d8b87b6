"""The space of a search: designs (model, device, division), and at each point of settings a candidate to run."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple, cast

from stageline.api.keywords import PlanKeywords
from stageline.api.launching import Answer
from stageline.api.planning import PlanInputs, find_inputs, plan_inputs
from stageline.api.question import Question
from stageline.api.scheduling import settle
from stageline.api.scoreboard import Try
from stageline.api.search_bounds import refused
from stageline.api.trials import Candidate
from stageline.api.variations import Point, variations
from stageline.api.workload_totals import WorkloadTotals
from stageline.engine.settings import plan_scheduling
from stageline.errors import BadInput, DoesNotFit, UsageError
from stageline.plan.replicas import with_replicas
from stageline.plan.schema import Plan
from stageline.plan.shapes import Shape, shapes
from stageline.report.slo import Slo

IDLE_WITHOUT_REPLICAS = "balance"  # a setting that means nothing with one replica


class Skipped(NamedTuple):
    """A division that was not run, and why."""

    name: str
    reason: str


class Design(NamedTuple):
    """What to run on: a division of so many devices, in the formats of a point of the format axes."""

    model: str
    device: str
    shape: Shape
    formats: Point


class Space:
    """Designs and their candidates; plans are made once for every point of the plan's settings."""

    def __init__(self, question: Question) -> None:
        self._q = question
        self.axes = variations(question.vary, question.scheduling)
        self._inputs: dict[tuple[str, str, Point], PlanInputs] = {}
        self._plans: dict[tuple[Design, Point], Plan | str] = {}
        self.skipped: dict[Skipped, None] = {}  # in the order found, each once

    def designs(self, model: str, device: str) -> Iterator[Design]:
        """Every division of the numbers of devices asked for that the limits allow, in every format."""
        points = self.format_points()
        inputs = self.inputs(model, device)
        for count in self._q.devices:
            for shape in shapes(inputs.model, count, self._q.max_context_parallel):
                reason = self._q.limits.refused(inputs.device, shape)
                if reason is not None:
                    self.leave(self.prefixed(model, device, shape.name), reason)
                    continue
                yield from (Design(model, device, shape, formats) for formats in points)

    def format_points(self) -> list[Point]:
        """All points of the axes that are formats."""
        return list(product(*(range(self.axes.sizes[n]) for n in self.axes.format_axes())))

    def named(self, design: Design) -> str:
        """A division, with its formats, model and device where there are several."""
        words = self.axes.format_words(design.formats)
        name = f"{design.shape.name} {words}" if words else design.shape.name
        return self.prefixed(design.model, design.device, name)

    def size(self, design: Design) -> str:
        """How many devices, with model and device where there are several."""
        return self.prefixed(design.model, design.device, f"{design.shape.devices} devices")

    def kind(self, design: Design) -> object:
        """Designs of one kind differ in formats only."""
        return design[:3]

    def cost(self, design: Design) -> float:
        """Money per hour if known, else devices."""
        return self.expense(design.device, design.shape.devices)

    def expense(self, device: str, devices: int) -> float:
        """Of so many devices: money per hour if known, else their number."""
        money = self._q.limits.cost(device, devices)
        return float(devices) if money is None else money

    def leave(self, name: str, reason: str) -> None:
        """Note what is left out."""
        self.skipped[Skipped(name, reason)] = None

    def prefixed(self, model: str, device: str, text: str) -> str:
        """A text behind model and device where there are several."""
        several = len(self._q.models) * len(self._q.device_names) > 1
        return f"{model} on {device}: {text}" if several else text

    def whole(self, design: Design, point: Point) -> Point:
        """A point of all axes: the design's formats, then the settings."""
        return (*design.formats, *point)

    def sizes(self) -> list[int]:
        """The sizes of the axes that are no formats."""
        return self.axes.sizes[len(self.axes.format_axes()) :]

    def combinations(self, design: Design) -> int:
        """How many settings of a design are worth telling apart (see `same`)."""
        return self.settings_count(alone=design.shape.replicas == 1)

    def settings_count(self, *, alone: bool) -> int:
        """How many points of the settings are worth telling apart; `alone`: for a plan of one replica."""
        axes = self.axes.axes[len(self.axes.format_axes()) :]
        return math.prod(1 if alone and a.name == IDLE_WITHOUT_REPLICAS else len(a.values) for a in axes)

    def candidate(
        self, design: Design, point: Point, requests: int | None, totals: WorkloadTotals, slo: Slo | None
    ) -> Candidate | str:
        """What to run, or why it is not worth it: it does not fit, or a bound forbids it.

        Where a loss must be survived, it is the plan without one replica.
        """
        whole = self.whole(design, point)
        plan = self.plan(design, whole)
        if isinstance(plan, str):
            return plan
        if self._q.survive_loss:
            if plan.replicas == 1:
                return "there is no other replica when one is lost (--survive-loss)"
            plan = with_replicas(plan, plan.replicas - 1)
        try:
            given = self._q.given | self.axes.of_run(whole)
            scheduling = settle(self._q.scheduling or plan_scheduling(plan), given, plan, slo=slo)
        except UsageError as error:
            return str(error)
        counted = slo is not None and self._q.every_request_counts
        forbidden = refused(plan, scheduling, totals, slo) if slo is not None and counted else None
        if forbidden is not None:
            return forbidden
        return Candidate(
            model=plan.model, device=plan.device, name=design.shape.name, devices=design.shape.devices, plan=plan,
            workload=self._q.workload, seed=self._q.seed, rate_scale=self._q.rate_scale, requests=requests,
            slo=self._q.slo, scheduling=scheduling, settings=self.axes.words(whole), window=self._q.window,
        )  # fmt: skip

    def same(self, t: Try, designs: Sequence[Design]) -> Try:
        """The try that stands for it: a routing policy means nothing with one replica."""
        if designs[t.design].shape.replicas > 1:
            return t
        first = len(self.axes.format_axes())
        names = [axis.name for axis in self.axes.axes[first:]]
        return Try(t.design, tuple(0 if n == IDLE_WITHOUT_REPLICAS else i for n, i in zip(names, t.point, strict=True)))

    def answer(self, design: Design, point: Point, candidate: Candidate) -> Answer:
        """What a trial ran, as it was asked for."""
        keywords, price = self.keywords_at(design, point), self._q.limits.price(design.device)
        plan = candidate.one_plan()
        return Answer(design.model, design.device, design.shape, keywords, candidate, plan, price)

    def keywords_at(self, design: Design, point: Point) -> PlanKeywords:
        """The keywords of the plan at a point, without its division."""
        return self.keywords(self.whole(design, point), design.shape)

    def inputs(self, model: str, device: str) -> PlanInputs:
        """What plans are made from, with the first value of every axis."""
        return self._found(model, device, self._origin())

    def keywords(self, whole: Point, shape: Shape) -> PlanKeywords:
        """The keywords of the plan of a division at a point of all axes."""
        keywords: PlanKeywords = self._q.keywords | self.axes.of_plan(whole)
        if shape.ep == 1 and "redundant_experts" in keywords:
            keywords["redundant_experts"] = 0  # there are no expert ranks to hold them
        return keywords

    def _origin(self) -> Point:
        return tuple(0 for _ in self.axes.axes)

    def _found(self, model: str, device: str, whole: Point) -> PlanInputs:
        key = (model, device, tuple(i for a, i in zip(self.axes.axes, whole, strict=True) if a.of_plan))
        if key not in self._inputs:
            self._inputs[key] = find_inputs(
                model, device, self._q.keywords | self.axes.of_plan(whole), self._q.catalog_dirs
            )
        return self._inputs[key]

    def plan(self, design: Design, whole: Point) -> Plan | str:
        """The plan of a design at a point of all axes; a text where there is none, and why."""
        key = (design, tuple(i for a, i in zip(self.axes.axes, whole, strict=True) if a.of_plan))
        if key not in self._plans:
            self._plans[key] = self._made(design, whole)
        return self._plans[key]

    def _made(self, design: Design, whole: Point) -> Plan | str:
        """The plan of a design; a text where it does not fit, or is no division that this model allows."""
        self._found(design.model, design.device, whole)  # what is wrong with the values themselves is no reason to skip
        keywords = cast(PlanKeywords, {**self.keywords(whole, design.shape), **design.shape.division()})
        try:
            inputs = find_inputs(design.model, design.device, keywords, self._q.catalog_dirs)
            return plan_inputs(inputs).plan
        except (BadInput, UsageError) as error:
            return str(error)
        except DoesNotFit as error:  # the change that it names is one of `plan`, for one replica alone
            return error.reason
