"""What bounds a visit: the parts add up to its service time, and go where they belong."""

from collections.abc import Callable

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.cost.bounds import KINDS, bounds_ns, shares_text
from stageline.cost.entries import Affine, Roofline
from stageline.cost.group import Group
from stageline.cost.roofline_entry import CapturedSizes, HostOverhead, roofline_entry
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals

SHELF = Catalog()
H100, WAFER = SHELF.device("h100-sxm").device, SHELF.device("wse-3t").device
DECODE = BatchTotals(decode_sequences=8, decode_tokens=8, decode_kv_tokens=8000, decode_pairs=8000, sampled=8)
PREFILL = BatchTotals(
    prefill_sequences=1, prefill_tokens=8192, prefill_kv_tokens=8192, prefill_pairs=8192 * 8193 // 2, sampled=1
)
ENTRIES: dict[str, Callable[[], Roofline]] = {
    "dense": lambda: roofline_entry(SHELF.model("llama-3.1-70b").spec, range(80), H100, Group(tensor=8), head=True),
    "experts": lambda: roofline_entry(
        SHELF.model("deepseek-v3").spec, range(61), H100, Group(tensor=1, attention_replicas=8, experts=True), head=True
    ),
    "wafer": lambda: roofline_entry(SHELF.model("kimi-k3").spec, range(4), WAFER),
    "ring": lambda: roofline_entry(SHELF.model("llama-3.1-70b").spec, range(80), H100, Group(tensor=4, context=2)),
    "host": lambda: roofline_entry(
        SHELF.model("llama-3.1-8b").spec, range(32), H100, head=True,
        host=HostOverhead(sequence_ns=40_000.0, step_ns=1e6, graphs=CapturedSizes((1, 2, 4, 16), op_ns=0.0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("totals", [DECODE, PREFILL], ids=["decode", "prefill"])
def test_the_parts_add_up(name: str, totals: BatchTotals) -> None:
    """Without what the host adds, the parts alone come to within 0.1 % of the devices' time."""
    entry = ENTRIES[name]()
    found = bounds_ns(entry, totals)
    assert tuple(found) == KINDS and all(ns >= 0 for ns in found.values())
    assert sum(found.values()) == pytest.approx(compile_cost(entry).service_ns(totals), abs=1)
    if name != "host":
        assert found["host"] <= 0.001 * sum(found.values())


def test_decode_reads_and_prefill_computes() -> None:
    decode, prefill = (bounds_ns(ENTRIES["dense"](), totals) for totals in (DECODE, PREFILL))
    assert max(decode, key=lambda kind: decode[kind]) == "memory"
    assert max(prefill, key=lambda kind: prefill[kind]) == "compute"
    assert decode["network"] > 0 < prefill["network"]


def test_the_host_is_what_it_adds() -> None:
    entry = ENTRIES["host"]()
    found = bounds_ns(entry, DECODE)
    without = compile_cost(msgspec.structs.replace(entry, sequence_ns=0.0, step_ns=0.0)).service_ns(DECODE)
    assert found["host"] == pytest.approx(compile_cost(entry).service_ns(DECODE) - without, rel=0.01)
    assert found["host"] == pytest.approx(8 * 40_000 + 1e6, rel=0.01)


def test_what_was_measured_whole_is_not_told_apart() -> None:
    assert bounds_ns(Affine(base_ns=7), DECODE)["measured"] == 7
    assert shares_text({"memory": 2.0, "host": 1.0, "fixed": 0.001}) == "memory 67 %, host 33 %"
