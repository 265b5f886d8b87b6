"""The page's data against stages.json: the same busy and idle times, whatever the shape they are packed in."""

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest

from stageline.cost.arrays import IntArray
from stageline.engine.causes import CAUSES
from stageline.report.events import Served
from stageline.report.page import lanes
from stageline.report.page.columns import LIMIT, Column, Packer, zigzag
from stageline.report.page.data import page_data
from stageline.report.page.render import fill_template, write_page
from stageline.report.rundir import read_events, read_parts, read_stages
from tests.known import SLOW, TIGHT, write_run


def unpack(columns: dict[str, Column], blob: str, name: str) -> IntArray:
    """One column back out of a blob: what the page's script does."""
    column = columns[name]
    raw = zlib.decompress(base64.b64decode(blob))
    planes = np.frombuffer(raw, np.uint8, column.count * column.planes, column.offset).reshape(column.planes, -1)
    weights = 1 << (8 * np.arange(column.planes, dtype=np.int64))
    return weights @ planes.astype(np.int64)


def totals_of(directory: Path) -> dict[tuple[int, str], int]:
    """Busy time and idle time by cause of every stage, added up from the single services and gaps of the page."""
    data, blob = page_data(directory)
    get = {name: unpack(data.columns, blob, name) for name in data.columns}
    totals, service, piece = dict[tuple[int, str], int](), 0, 0
    for stage, count in enumerate(get["lane.services"]):
        rows = slice(service, service + count)
        spent = int(get["service.gap"][rows].sum() + get["service.duration"][rows].sum())
        totals[stage, "busy"] = int(get["service.duration"][rows].sum())
        totals[stage, "drain"] = data.window.length_ns - spent
        pieces = slice(piece, piece + int(get["service.pieces"][rows].sum()))
        for code, length in zip(get["piece.cause"][pieces], get["piece.length"][pieces], strict=True):
            key = stage, data.categories[code]
            totals[key] = totals.get(key, 0) + int(length)
        service, piece = rows.stop, pieces.stop
    return {key: ns for key, ns in totals.items() if ns}


def test_services_and_gaps_add_up_to_stages_json(tmp_path: Path) -> None:
    write_run(tmp_path)
    wanted = {}
    for record in read_stages(tmp_path):
        wanted[record.stage, "busy"] = record.busy_ns
        wanted |= {(record.stage, cause): record.idle_ns.get(cause, 0) for cause in CAUSES}
    assert totals_of(tmp_path) == {key: ns for key, ns in wanted.items() if ns}


def test_the_known_run_has_every_cause_it_was_made_for(tmp_path: Path) -> None:
    summary = write_run(tmp_path)
    stages = read_stages(tmp_path)
    assert summary.busiest_stage == SLOW
    assert summary.binding_stage == TIGHT
    seen = {cause for record in stages for cause, ns in record.idle_ns.items() if ns}
    assert seen >= {"fill", "drain", "kv_blocked", "upstream", "starved", "empty"}


def test_slices_cover_the_window_once(tmp_path: Path) -> None:
    write_run(tmp_path)
    data, blob = page_data(tmp_path)
    shares = sum(
        unpack(data.columns, blob, name).reshape(len(data.stages), -1)
        for name in data.columns
        if name.startswith("share.")
    )
    used = data.window.length_ns // data.window.slice_ns
    assert np.all(np.abs(shares[:, :used] - 255) <= len(data.categories))
    for lane, record in enumerate(data.stages):
        busy = unpack(data.columns, blob, "share.busy").reshape(len(data.stages), -1)[lane].sum()
        assert busy * data.window.slice_ns / 255 == pytest.approx(record.busy_ns, rel=0.02)


def test_kv_reaches_its_peak(tmp_path: Path) -> None:
    write_run(tmp_path)
    data, blob = page_data(tmp_path)
    kv = unpack(data.columns, blob, "kv").reshape(len(data.stages), -1)
    for lane, record in enumerate(data.stages):
        assert kv[lane].max() == -(-1000 * record.kv_peak_bytes // record.kv_budget_bytes)
    assert kv[TIGHT].max() == 1000


def test_groups_are_what_is_in_flight(tmp_path: Path) -> None:
    """Requests in flight over time, added up, are the time that every microbatch took from first to last stage."""
    write_run(tmp_path)
    data, blob = page_data(tmp_path)
    parts, begin, wanted = read_parts(tmp_path), dict[int, int](), 0
    for event in read_events(tmp_path):
        if isinstance(event, Served):
            begin.setdefault(event.number, event.start_ns)
            if event.visit == data.summary.visits - 1:
                wanted += parts[0, event.number].requests * (event.end_ns - begin[event.number])
    shown = unpack(data.columns, blob, "groups").reshape(data.groups, -1)
    assert data.groups == 1 + max(part.group for part in parts.values()) > 1
    assert shown.sum() * data.window.slice_ns / 10 == pytest.approx(wanted, rel=0.02)


def test_queue_counts_requests(tmp_path: Path) -> None:
    write_run(tmp_path)
    data, blob = page_data(tmp_path)
    waiting, running = (unpack(data.columns, blob, f"queue.{name}") for name in ("waiting", "running"))
    assert waiting.max() == 9  # one of ten is admitted at once
    assert running.max() == 3  # KV holds three
    assert waiting[-1] == 0


def test_a_longer_run_keeps_its_beginning_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path)
    whole, _ = page_data(tmp_path)
    monkeypatch.setattr(lanes, "MAX_EXACT_SERVICES", 40)
    data, blob = page_data(tmp_path)
    assert data.window.services == whole.window.services > data.window.exact_services == 40
    assert 0 < data.window.exact_until_ns < data.window.length_ns
    assert unpack(data.columns, blob, "lane.services").sum() == 40


def test_a_run_without_events_has_no_lanes(tmp_path: Path) -> None:
    write_run(tmp_path, events=False)
    data, _ = page_data(tmp_path)
    assert not data.events
    assert "lane.services" not in data.columns
    assert data.groups == 0
    assert "queue.waiting" in data.columns


def test_a_page_is_one_file_and_always_the_same(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_page(tmp_path, tmp_path / "a.html")
    write_page(tmp_path, tmp_path / "b.html")
    text = (tmp_path / "a.html").read_text()
    assert text == (tmp_path / "b.html").read_text()
    assert "%%" not in text
    addresses = {word for word in text.split('"') if word.startswith("http")}
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, never fetched


def test_columns_survive_packing() -> None:
    packer = Packer()
    values = {
        "small": np.array([0, 1, 255]),
        "large": np.array([0, 256, LIMIT - 1]),
        "none": np.array([], dtype=np.int64),
        "signed": zigzag(np.array([0, -1, 1, -2, 2])),
    }
    for name, column in values.items():
        packer.add(name, column)
    for name, column in values.items():
        assert unpack(packer.columns, packer.blob(), name).tolist() == column.tolist()
    assert values["signed"].tolist() == [0, 1, 2, 3, 4]
    for bad in ([-1], [LIMIT]):
        with pytest.raises(ValueError, match="do not fit"):
            packer.add("bad", np.array(bad))


def test_what_is_filled_in_is_not_filled_again() -> None:
    assert fill_template("<%%A%%|%%B%%>", {"A": "%%B%%", "B": "b"}) == "<%%B%%|b>"
