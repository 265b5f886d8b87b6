"""What a search varies besides the division of devices: settings of the plan and of the router, with their values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast, get_type_hints

import msgspec

from stageline.api.arguments import plain, shown
from stageline.api.keywords import DesignKeywords, PlanKeywords, SchedulingKeywords, allowed_values
from stageline.engine.policies.all_policies import POLICIES
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from stageline.report.rerun import flag

FORMATS = ("weights", "kv_cache_dtype")  # they change what fits: a search tries each with every division
MAX_POINTS = 1 << 24


class Axis(NamedTuple):
    """One setting and the values to try. `of_plan`: a plan is made for each of them, with the memory that it takes."""

    name: str
    values: tuple[Any, ...]
    of_plan: bool

    def words(self, index: int) -> list[str]:
        """As `plan` or `run` takes the value."""
        value = self.values[index]
        if self.name == "prefix_cache":
            return ["--enable-prefix-caching" if value else "--no-enable-prefix-caching"]
        if self.of_plan:
            return [f"--{self.name.replace('_', '-')}", str(value)]
        return flag(self.name, value)


Point = tuple[int, ...]  # an index for every axis


class Variations(msgspec.Struct, frozen=True):
    """The axes, formats first."""

    axes: tuple[Axis, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """How many values each axis has."""
        return [len(axis.values) for axis in self.axes]

    @property
    def count(self) -> int:
        """How many points there are."""
        total = 1
        for size in self.sizes:
            total *= size
        return total

    def of_plan(self, point: Point) -> PlanKeywords:
        """The keywords of the plan at a point."""
        chosen = {a.name: a.values[i] for a, i in zip(self.axes, point, strict=True) if a.of_plan}
        return cast(PlanKeywords, chosen)

    def of_run(self, point: Point) -> dict[str, Any]:
        """The fields of `Scheduling` at a point."""
        return {a.name: a.values[i] for a, i in zip(self.axes, point, strict=True) if not a.of_plan}

    def words(self, point: Point) -> str:
        """The flags of what is varied; empty if nothing is."""
        pairs = [(a, i) for a, i in zip(self.axes, point, strict=True) if len(a.values) > 1]
        return " ".join(word for axis, index in pairs for word in axis.words(index))

    def format_words(self, formats: Point) -> str:
        """The flags of the formats alone."""
        chosen = [self.axes[number] for number in self.format_axes()]
        pairs = zip(chosen, formats, strict=True)
        return " ".join(word for axis, index in pairs if len(axis.values) > 1 for word in axis.words(index))

    def format_axes(self) -> list[int]:
        """The numbers of the axes that are formats."""
        return [number for number, axis in enumerate(self.axes) if axis.name in FORMATS]


def variations(given: Mapping[str, Iterable[Any]], scheduling: Scheduling | None) -> Variations:
    """Axes from keywords of `plan_model` or fields of `Scheduling`, each with values. Raises UsageError.

    A setting that both know is the plan's, so that the memory which it takes is counted, unless the caller gives the
    whole scheduling, which goes before the plan's.
    """
    of_plan = get_type_hints(DesignKeywords, include_extras=True)
    of_run = get_type_hints(SchedulingKeywords, include_extras=True)
    axes = []
    for name, values in given.items():
        if name not in of_plan and name not in of_run:
            known = ", ".join(sorted({*of_plan, *of_run}))
            raise UsageError(f"search: vary names {name!r}, which is no setting; known: {known}")
        plans = name in of_plan and not (scheduling is not None and name in of_run)
        axes.append(Axis(name, _values(name, values, (of_plan if plans else of_run)[name]), plans))
    found = Variations(tuple(sorted(axes, key=lambda axis: (axis.name not in FORMATS, axis.name))))
    if found.count > MAX_POINTS:
        raise UsageError(f"search: vary makes {found.count:,} combinations, more than {MAX_POINTS:,}: vary less")
    return found


def _values(name: str, values: Iterable[Any], hint: Any) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise UsageError(f"search: vary {name}={shown(values)}: give a list of values")
    found: list[Any] = []
    for value in values:
        try:
            taken = msgspec.convert(plain(value), hint)
        except msgspec.ValidationError:
            raise UsageError(f"search: vary {name}={shown(value)}: give {allowed_values(hint)}") from None
        if name in POLICIES and ":" not in taken and taken not in POLICIES[name].built_in:
            known = ", ".join(POLICIES[name].built_in)
            raise UsageError(f"--{name} {taken}: there is no such policy; known: {known}")
        if taken not in found:
            found.append(taken)
    if not found:
        raise UsageError(f"search: vary {name}: give one value or more")
    return tuple(found)


def spread(sizes: Sequence[int], parts: int) -> list[Point]:
    """Points along the diagonal of a box: the first values of all axes, the last ones, and `parts` - 2 between."""
    shares = [part / (parts - 1) for part in range(parts)]
    return list(dict.fromkeys(tuple(round(share * (size - 1)) for size in sizes) for share in shares))


def star(point: Point, sizes: Sequence[int]) -> list[Point]:
    """Every point that differs in one axis."""
    return [
        (*point[:axis], index, *point[axis + 1 :])
        for axis, size in enumerate(sizes)
        for index in range(size)
        if index != point[axis]
    ]
