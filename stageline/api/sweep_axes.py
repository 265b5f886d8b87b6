"""What a sweep goes over: settings of the router, and the load; each with values or a range of them.

An axis is named as the keyword of the API; people read and write the flag's name and its values.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, get_type_hints

import msgspec

from stageline.api.arguments import plain, shown
from stageline.api.keywords import SchedulingKeywords, allowed_values
from stageline.errors import BadInput, UsageError
from stageline.report.rerun import PPM
from stageline.units import duration_text, figure_text, parse_duration_ns, parse_ratio
from stageline.workload.spec import parse_spec

LOADS = ("rate", "users", "rate_scale")
TIMES = ("overhead_ns", "front_end_ns", "draft_ns")
_FLAGS = {
    "acceptance_ppm": "acceptance",
    "overhead_ns": "overhead",
    "front_end_ns": "front-end",
    "draft_ns": "draft-cost",
}
_KEYWORDS = {flag.replace("-", "_"): name for name, flag in _FLAGS.items()} | {"enable_prefix_caching": "prefix_cache"}
SWITCH = {"on": True, "off": False}
IN_RANGE = 8  # values of a range that says no number
MOST_VALUES = 200
_RANGE = re.compile(r"([^.]+(?:\.\d+)?)\.\.([^:]+?)(?::(\d{1,3}))?")
Value = int | float | str | bool


class SweepAxis(NamedTuple):
    """One thing that varies. `load`: more of it is more work for the cluster."""

    name: str
    values: tuple[Value, ...]

    @property
    def load(self) -> bool:
        """Whether it is the load."""
        return self.name in LOADS

    @property
    def flag(self) -> str:
        """As users know it."""
        return flag_name(self.name)

    @property
    def numeric(self) -> bool:
        """Whether its values have an order."""
        return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in self.values)


def flag_name(name: str) -> str:
    """The flag of a keyword, or the option of a load, without dashes in front."""
    return _FLAGS.get(name, name.replace("_", "-"))


def value_text(name: str, value: Value) -> str:
    """A value as its flag takes it; of a load, for people."""
    if name in TIMES:
        return duration_text(int(value))
    if name == "acceptance_ppm":
        return f"{Fraction(int(value), PPM) * 1.0:.6f}".rstrip("0").rstrip(".")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    return figure_text(value) if isinstance(value, float) else value


def sweep_axes(over: Mapping[str, object]) -> tuple[SweepAxis, ...]:
    """At most two, the load first; texts are values with commas, or LOW..HIGH[:COUNT].

    Raises UsageError or BadInput.
    """
    if len(over) > 2:
        raise UsageError(f"--over: {', '.join(over)} are {len(over)} things; a sweep goes over one or two")
    named = {_KEYWORDS.get(name, name): given for name, given in over.items()}
    axes = [SweepAxis(name, _values(name, given)) for name, given in named.items()]
    if len(axes) < len(over):
        raise UsageError(f"--over: {' and '.join(map(flag_name, over))} are the same; give all its values at once")
    if sum(axis.load for axis in axes) > 1:
        raise UsageError(f"--over: {' and '.join(a.flag for a in axes)} both change the load; give one of them")
    return tuple(sorted(axes, key=lambda axis: not axis.load))


def load_name(workload: str) -> str:
    """What changes the load of a workload: users of a closed loop, the rate of arrivals, or the scale of a trace's."""
    spec = parse_spec(workload)
    if spec is None:
        return "rate_scale"
    if spec.kind == "closed":
        return "users"
    return "rate" if re.fullmatch(r"[0-9.]+", spec.options.get("rate", "")) else "rate_scale"


def load_of(workload: str, rate_scale: str, name: str) -> float:
    """The load that a workload has by itself."""
    if name == "rate_scale":
        return float(parse_ratio(rate_scale, "--rate-scale"))
    spec = parse_spec(workload)
    if spec is None:
        raise BadInput("--workload", workload, f"it has no {name}", "sweep over rate-scale")
    return float(parse_ratio(spec.required(name), spec.option(name)))


def with_load(workload: str, rate_scale: str, name: str, value: Value) -> tuple[str, str]:
    """The workload's text and the rate scale at another load. Raises BadInput where it has no such thing."""
    number = _number(value)
    if name == "rate_scale":
        return workload, number
    spec = parse_spec(workload)
    if spec is None or name not in spec.options:
        way_out = f"sweep over {load_name(workload).replace('_', '-')}"
        raise BadInput("--over", name, f"the workload {workload!r} has no {name}=", way_out)
    found = re.sub(rf"(^|[:,])(\s*{name}\s*)=[^,]*", lambda m: f"{m[1]}{m[2]}={number}", workload, count=1)
    return found, rate_scale


def _number(value: Value) -> str:
    """A number as options take it, never with an exponent."""
    if isinstance(value, int):
        return str(value)
    found = Fraction(str(value)).limit_denominator(1000)
    return str(found.numerator) if found.denominator == 1 else f"{float(found):.3f}".rstrip("0").rstrip(".")


def _values(name: str, given: object) -> tuple[Value, ...]:
    """The values of an axis, each once, numbers ascending."""
    hints = get_type_hints(SchedulingKeywords, include_extras=True)
    if name not in LOADS and name not in hints:
        known = ", ".join(map(flag_name, [*LOADS, *hints]))
        raise UsageError(f"--over {flag_name(name)}: no setting of a run; known: {known}")
    whole = name == "users" or (name != "acceptance_ppm" and _whole(hints.get(name)))
    items = _items(flag_name(name), given, whole=whole)
    if name in LOADS:
        found = [_load(flag_name(name), item) for item in items]
    else:
        found = [_setting(name, item, hints[name]) for item in items]
    unique = list(dict.fromkeys(found))
    if not unique or len(unique) > MOST_VALUES:
        raise UsageError(f"--over {flag_name(name)}: {len(unique)} values; give 1 to {MOST_VALUES}")
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in unique)
    return tuple(sorted(unique)) if numeric else tuple(unique)


def _whole(hint: Any) -> bool:
    try:
        msgspec.convert(1, hint)
    except msgspec.ValidationError:
        return False
    return True


def _items(name: str, given: object, *, whole: bool) -> list[Any]:
    """The values that were given, or those of a range; `name` is the flag's."""
    if not isinstance(given, str):
        if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
            raise UsageError(f"--over {name}={shown(given)}: give values, or a text such as 2..20")
        return [plain(item) for item in given]
    match = _RANGE.fullmatch(given.strip())
    if match is None:
        return [part.strip() for part in given.split(",") if part.strip()]
    try:
        low, high = float(match[1]), float(match[2])
    except ValueError:
        raise BadInput(f"--over {name}", given, "not a range of numbers", "write it like 2..20 or 2..20:7") from None
    count = int(match[3]) if match[3] else IN_RANGE
    if not 0 < low < high or count < 2:
        raise BadInput(f"--over {name}", given, "not a range upwards from above 0", "write it like 2..20 or 2..20:7")
    steps = [low + (high - low) * n / (count - 1) for n in range(count)]
    return [round(x) if whole else round(x, 3) for x in steps]


def _load(name: str, item: object) -> Value:
    try:
        number = float(item) if isinstance(item, (str, int, float)) else float("nan")
    except ValueError:
        number = float("nan")
    if not 0 < number < 1e9 or (name == "users" and number != int(number)):
        kind = "a positive whole number" if name == "users" else "a positive number"
        raise BadInput(f"--over {name}", item, f"not {kind}", "write it like 2,4,8 or 2..20")
    return int(number) if number == int(number) else number


def _setting(name: str, item: object, hint: Any) -> Value:
    place = f"--over {flag_name(name)}"
    try:
        found: Value = msgspec.convert(_read(name, item, place), hint)
    except msgspec.ValidationError:
        choices = "on or off" if hint is bool else "a probability" if name == "acceptance_ppm" else allowed_values(hint)
        raise BadInput(place, item, "no value of this setting", f"give {choices}") from None
    return found


def _read(name: str, item: object, place: str) -> object:
    """A text as its flag reads it; a number of a range of probabilities, as parts per million."""
    if name == "acceptance_ppm" and isinstance(item, (str, float)):
        return 0 if item in ("0", 0.0) else round(parse_ratio(str(item), place) * PPM)
    if not isinstance(item, str):
        return item
    if name in TIMES:
        return parse_duration_ns(item, place)
    return SWITCH.get(item, int(item) if item.isascii() and item.isdigit() else item)
