"""The text format against the client library's parser and its own encoder."""

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stageline.runtime.text_format import encode


def parsed(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels, without times of creation."""
    families = text_string_to_metric_families(text.decode())
    samples = [s for family in families for s in family.samples if not s.name.endswith("_created")]
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}


def test_reads_like_the_library_writes() -> None:
    registry = CollectorRegistry()
    Counter("events", 'Help with "quotes", a \\ and a\nline.', ["kind"], registry=registry).labels('a"b\\c\nd').inc(3)
    Gauge("level", "Level.", registry=registry).set(0.1)
    Gauge("top", "Top.", registry=registry).set(math.inf)
    Gauge("bottom", "Bottom.", registry=registry).set(-math.inf)
    Histogram("sizes", "Sizes.", buckets=(1, 2.5), registry=registry).observe(2)
    assert parsed(encode(registry)) == parsed(generate_latest(registry))
    assert parsed(encode(registry))["level", ()] == 0.1


def test_families_say_what_they_are() -> None:
    registry = CollectorRegistry()
    Counter("events", "Some\nhelp.", registry=registry)
    text = encode(registry).decode()
    assert "# HELP events_total Some\\nhelp.\n# TYPE events_total counter\nevents_total 0\n" in text


def test_not_a_number() -> None:
    registry = CollectorRegistry()
    Gauge("odd", "Odd.", registry=registry).set(math.nan)
    assert b"\nodd NaN\n" in encode(registry)
