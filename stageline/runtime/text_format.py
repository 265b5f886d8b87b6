"""Prometheus' text format 0.0.4: the client library's own encoder costs 15 us per sample, on the loop of a server."""

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def encode(registry: CollectorRegistry) -> bytes:
    """Everything that the registry's collectors tell."""
    return "".join(line for family in registry.collect() for line in _family(family)).encode()


def _family(family: Metric) -> Iterable[str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    kind = "untyped" if family.type == "unknown" else family.type
    yield f"# HELP {name} {family.documentation.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"
    for sample in family.samples:
        if sample.labels:
            pairs = [f'{key}="{value.translate(_ESCAPES)}"' for key, value in sample.labels.items()]
            yield f"{sample.name}{{{','.join(pairs)}}} {_value(sample.value)}\n"
        else:
            yield f"{sample.name} {_value(sample.value)}\n"


def _value(value: float) -> str:
    """Integers as such; infinities as Prometheus writes them."""
    if math.isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
