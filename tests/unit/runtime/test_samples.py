"""Reading metrics back: differences, resets, quantiles."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from stageline.runtime.samples import parse
from stageline.runtime.text_format import encode


def test_reads_what_the_encoder_writes() -> None:
    registry = CollectorRegistry()
    events = Counter("events", "Events.", ["kind", "place"], registry=registry)
    events.labels('a"b\\n\n', "x").inc(3)
    events.labels("c", "x").inc(4)
    samples = parse(encode(registry))
    assert samples.total("events_total") == 7
    assert samples.total("events_total", place="x", kind="c") == 4
    assert ({"kind": 'a"b\\n\n', "place": "x"}, 3.0) in samples.of("events_total")
    assert samples.total("nothing") == 0


def test_what_was_added_since() -> None:
    before, after = parse(b'n{a="1"} 5\nn{a="2"} 9\n'), parse(b'n{a="1"} 7\nn{a="2"} 4\nn{a="3"} 1\n')
    passed = after.since(before)
    assert [passed.total("n", a=a) for a in "123"] == [2, 4, 1]  # 2 began anew
    assert after.since(None).total("n") == 12


def test_quantiles_are_bounds_of_buckets() -> None:
    registry = CollectorRegistry()
    sizes = Histogram("sizes", "Sizes.", buckets=(1, 2, 4), registry=registry)
    for value in (0.5, 1.5, 1.6, 3):
        sizes.observe(value)
    samples = parse(encode(registry))
    assert [samples.quantile("sizes", q) for q in (0.25, 0.5, 0.75, 1)] == [1, 2, 2, 4]
    assert samples.quantile("nothing", 0.5) is None


def test_a_line_that_is_no_sample() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        parse(b"what is this\n")
