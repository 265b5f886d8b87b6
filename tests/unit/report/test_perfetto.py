"""The trace against the events it was made of, read back by a decoder that knows nothing of the writer."""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stageline.report.events import Served
from stageline.report.perfetto import trace
from stageline.report.perfetto.rows import RowAllocator
from stageline.report.rundir import read_events, read_stages
from tests.known import known_plan, write_run


def fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of every field of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(raw):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, struct.unpack_from("<Q", raw, at)[0]
            at += 8
        else:
            length = varint()
            yield key >> 3, raw[at : at + length]
            at += length


class Trace:
    """Tracks by uuid, and their slices as (name, begin, end, flows)."""

    def __init__(self, path: Path) -> None:
        self.names: dict[int, str] = {}
        self.slices: dict[int, list[tuple[str, int, int, list[int]]]] = defaultdict(list)
        self.counters: dict[int, list[tuple[int, int]]] = defaultdict(list)
        open_: dict[int, list[tuple[str, int, list[int]]]] = defaultdict(list)
        for _, raw in fields(path.read_bytes()):
            packet = dict(fields(raw))
            if 60 in packet:
                track = dict(fields(packet[60]))
                name = track[2] if 2 in track else dict(fields(track[3]))[6]
                self.names[track[1]] = name.decode()
                continue
            event, flows = dict(fields(packet[11])), [v for n, v in fields(packet[11]) if n == 47]
            uuid = event[11]
            if event[9] == 1:
                open_[uuid].append((event[23].decode(), packet[8], flows))
            elif event[9] == 2:
                name, begin, joined = open_[uuid].pop()
                self.slices[uuid].append((name, begin, packet[8], joined))
            else:
                self.counters[uuid].append((packet[8], event[30]))
        assert not any(open_.values())

    def of(self, prefix: str) -> list[tuple[str, int, int, list[int]]]:
        """Slices of all tracks whose name begins like that."""
        return [s for uuid, name in self.names.items() if name.startswith(prefix) for s in self.slices[uuid]]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The run directory of the known run, with a trace."""
    write_run(tmp_path)
    assert trace.write_trace(tmp_path, tmp_path / "t").cut is False
    return tmp_path


def test_stages_show_what_stages_json_says(written: Path) -> None:
    seen = Trace(written / "t")
    for record in read_stages(written):
        spent = Counter[str]()
        for name, begin, end, _ in seen.of(f"stage {record.stage} "):
            spent["busy" if name.startswith("mb ") else name] += end - begin
        causes = {c: ns for c, ns in record.idle_ns.items() if c not in ("fill", "drain") and ns}
        assert spent == {"busy": record.busy_ns, **causes}


def test_kv_counters_reach_the_peak(written: Path) -> None:
    seen = Trace(written / "t")
    for record in read_stages(written):
        uuid = next(u for u, name in seen.names.items() if name.startswith(f"KV of stage {record.stage} "))
        assert max(value for _, value in seen.counters[uuid]) == record.kv_peak_bytes


def test_links_carry_every_hop_between_stages(written: Path) -> None:
    seen = Trace(written / "t")
    hops = [event for event in read_events(written) if isinstance(event, Served) and event.visit]
    assert sum(len(seen.of(f"link {v}")) for v in range(1, 4)) == len(hops)
    assert {end - begin for _, begin, end, _ in seen.of("link ")} == {known_plan().links[1].latency_ns}


def test_a_flow_leads_from_each_request_through_every_stage(written: Path) -> None:
    """The microbatch that brought the first token passes all stages and is back when the token is there."""
    seen, latency = Trace(written / "t"), known_plan().links[-1].latency_ns
    prefills = {s[3][0]: s for s in seen.of("requests") if s[0] == "prefill"}
    assert len(prefills) == 11
    for flow, (_, begin, end, _) in prefills.items():
        carried = sorted((s for s in seen.of("stage ") if flow in s[3]), key=lambda s: s[1])
        assert len({s[0] for s in carried}) == 1
        assert len(carried) == 4
        assert begin <= carried[0][1]
        assert carried[-1][2] + latency == end


def test_the_size_is_bounded(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_TRACE_SERVICES", 20)
    assert trace.write_trace(written, written / "cut") == trace.TraceSize(20, True)
    assert sum(s[0].startswith("mb ") for s in Trace(written / "cut").of("stage ")) == 20


def test_overlapping_intervals_get_rows_of_their_own() -> None:
    rows = RowAllocator()
    assert [rows.allocate(*i) for i in [(0, 10), (2, 5), (3, 4), (5, 9), (10, 12)]] == [0, 1, 2, 1, 0]
