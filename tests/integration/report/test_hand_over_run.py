"""A run with hand-overs in figures and pictures, against numbers worked by hand.

Every stage serves a microbatch in 100 ns, links take no time; a block of 16 tokens weighs 10 bytes, a port moves a byte
in 1 ns, and KV can be used 5 ns after it was sent. So a prompt of 4 with 3 tokens is prefilled until 100, has landed at
115, and is decoded until 315.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import stageline
from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.types import HandOverRecord, RequestRecord
from stageline.report.digest import digest_of
from stageline.report.page.data import page_data
from stageline.report.perfetto.trace import write_trace
from stageline.report.rundir import read_requests
from stageline.report.utilisation import WorkDone
from stageline.testing import uniform_plan
from tests.unit.report.test_page import unpack
from tests.unit.report.test_perfetto import Trace

WINDOW_NS = 315


def run(directory: Path, requests: int = 1, blocks: int = 100, **hand_over: Any) -> stageline.RunResult:
    """Through two prefill replicas and one that decodes, which has room for so many blocks."""
    plan = uniform_plan(1, kv_block_bytes=10, replicas=2)
    pools = (
        Pool(name="p", plan=plan, role="prefill"),
        Pool(name="d", plan=uniform_plan(1, kv_block_bytes=10, kv_budget_bytes=10 * blocks), role="decode"),
    )
    row = {"arrival_ns": 0, "prompt_tokens": 4, "output_tokens": 3}
    trace = directory / "trace.jsonl"
    trace.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for _ in range(requests)))
    network = HandOver(**{"bytes_per_s": 10**9, "latency_ns": 5} | hand_over)
    return stageline.run(Fleet(pools=pools, hand_over=network), trace, output=directory / "run", events=True)


def test_tokens_count_where_they_are_made(tmp_path: Path) -> None:
    source, target = run(tmp_path).summary.pools
    assert (source.requests, source.prompt_tokens, source.output_tokens) == (1, 4, 1)
    assert (target.requests, target.prompt_tokens, target.output_tokens) == (1, 0, 2)
    assert source.finished == target.finished == 1
    assert (source.busy_ratio, target.busy_ratio) == (100 / (2 * WINDOW_NS), 200 / WINDOW_NS)
    assert (source.queue_s.max, target.queue_s.max) == (0, 0)


@pytest.mark.parametrize(
    ("hand_over", "queues"),
    [
        ({}, (0, 215e-9)),  # from the end of its prefill at 100
        ({"order": "destination-first"}, (0, 315e-9)),  # from its arrival; it joins the queue of its source afterwards
        ({"order": "destination-first", "first_token": "decode"}, (0, 415e-9)),
        ({"first_token": "decode"}, (0, None)),  # no record says when its prefill was done
    ],
)
def test_the_wait_for_room_is_the_decode_pools_queue(
    hand_over: Any, queues: tuple[float, float | None], tmp_path: Path
) -> None:
    """The decode replica has room for one of two requests; the other one's comes when the first has ended."""
    source, target = run(tmp_path, 2, blocks=1, **hand_over).summary.pools
    assert (source.queue_s.max, target.queue_s.max) == queues


def test_the_first_token_may_be_the_decode_replicas(tmp_path: Path) -> None:
    source, target = run(tmp_path, first_token="decode").summary.pools
    assert (source.output_tokens, target.output_tokens) == (0, 3)


def test_what_was_sent_and_how_long_it_took(tmp_path: Path) -> None:
    """The second request follows the first through the only ingress: it starts at 110."""
    found = run(tmp_path, 2).summary
    assert found.hand_over is not None
    assert (found.hand_over.requests, found.hand_over.sent_bytes) == (2, 20)
    assert (found.hand_over.transfer_s.mean, found.hand_over.gap_s.max) == (15e-9, 25e-9)
    source, target = (pool.ports for pool in found.pools)
    assert source is not None
    assert target is not None
    assert (source.sent_bytes, source.received_bytes) == (target.received_bytes, target.sent_bytes) == (20, 0)
    window = found.emulated_s * 1e9
    assert source.egress_ratio == pytest.approx(20 / window / 2)  # of two replicas
    assert target.ingress_ratio == pytest.approx(20 / window)


def test_networks_are_compared(tmp_path: Path) -> None:
    """Half the bandwidth: 20 ns on the ports, and as much on the way."""
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
    slow = run(tmp_path / "slow", bytes_per_s=5 * 10**8)
    rows = {row.name: row for row in stageline.compare(run(tmp_path / "fast"), slow).rows}
    assert rows["KV transfer p50"].values == [15e-9, 25e-9]
    assert rows["KV transfer p50"].verdict(1) == "worse"
    assert rows["KV sent, GB"].values == [10 / 1e9, 10 / 1e9]
    assert rows["p ports"].values == pytest.approx([10 / 315 / 2, 20 / 325 / 2])


def test_both_parts_of_a_request_are_its_work() -> None:
    """But for the last token of the prompt, which is computed again where the first token counts there."""
    record = RequestRecord(
        index=0, replica=0, arrival_ns=0, admitted_ns=0, first_token_ns=1, last_token_ns=9, prompt_tokens=30,
        output_tokens=7, preemptions=0, outcome="finished", cached_tokens=8,
    )  # fmt: skip
    whole, parts, again = WorkDone(), WorkDone(), WorkDone()
    whole.request(record)
    parts.prefill(record)
    parts.decode(record, 6)
    assert vars(parts) == vars(whole)
    again.prefill(record)
    again.decode(record, 7)
    assert again.tokens == whole.tokens + 1
    assert again.kv_read_tokens == whole.kv_read_tokens + 30
    assert again.pairs == whole.pairs + 30


def test_records_are_read_back(tmp_path: Path) -> None:
    found = run(tmp_path)
    moved = HandOverRecord(decode_replica=2, reserved_ns=100, start_ns=100, end_ns=110, landed_ns=115, sent_bytes=10)
    assert [record.hand_over for record in found.requests] == [moved]
    assert list(read_requests(tmp_path / "run")) == list(found.requests)
    assert digest_of(tmp_path / "run") == found.summary.digest
    (row,) = found.rows()
    assert (row["replica"], row["hand_over_decode_replica"], row["hand_over_landed_ns"]) == (0, 2, 115)


def test_the_page_shows_the_way_through_pools(tmp_path: Path) -> None:
    run(tmp_path)
    data, blob = page_data(tmp_path / "run")
    shown = {
        name: int(unpack(data.columns, blob, f"request.{name}")[0]) for name in ("sent", "landed", "decode_replica")
    }
    assert shown == {"sent": 101, "landed": 116, "decode_replica": 3}  # plus 1: 0 stands for never


@pytest.mark.parametrize(
    ("hand_over", "parts", "gives_first"),
    [
        ({}, {"prefill": (0, 100), "transfer": (100, 115), "decode": (115, 315)}, "p-0 stage 0 (stage-0)"),
        (
            {"first_token": "decode"},
            {"prefill": (0, 100), "transfer": (100, 115), "decode": (115, 415)},
            "d-0 stage 0 (stage-0)",
        ),
    ],
)
def test_the_trace_shows_it_too(
    hand_over: Any, parts: dict[str, tuple[int, int]], gives_first: str, tmp_path: Path
) -> None:
    run(tmp_path, **hand_over)
    write_trace(tmp_path / "run", tmp_path / "trace")
    trace = Trace(tmp_path / "trace")
    tracks = {name: trace.slices[uuid] for uuid, name in trace.names.items() if trace.slices[uuid]}
    found = {name: (begin, end) for name, begin, end, _ in tracks["requests"] if name in parts}
    assert found == parts
    first = [name for name, slices in tracks.items() for _, _, _, flows in slices if flows and "stage" in name]
    assert first == [gives_first]


def test_spans_say_where_the_kv_went(tmp_path: Path) -> None:
    maker = pytest.importorskip("stageline.report.spans.maker")
    recorder = pytest.importorskip("stageline.report.spans.recorder")
    context = pytest.importorskip("stageline.report.spans.context")
    found = run(tmp_path)
    trace = recorder.RequestTrace(
        index=0, arrival_ns=0, trace_id=7, parent=None, visits=[], left_out=0, record=found.requests[0], broken_ns=0
    )
    (span,) = maker.SpanMaker(found.plan, context.Sampler("here", 1), lambda ns: ns).spans(trace)
    attributes = span.attributes
    assert (attributes["stageline.pool"], attributes["stageline.decode_pool"]) == ("p", "d")
    assert attributes["stageline.kv_sent_bytes"] == 10
    assert [(e.name, e.timestamp) for e in span.events][-2:] == [("KV transfer begins", 100), ("KV has landed", 115)]
