"""Recordings read back as written, and a damaged line is named."""

from pathlib import Path

import msgspec
import pytest

from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request
from stageline.errors import BadInput
from stageline.workload import open_workload
from stageline.workload.recording import (
    RecordedWorkload,
    RecordingHeader,
    cancel_line,
    end_line,
    header_line,
    request_line,
)

HEADER = header_line(RecordingHeader(plan_digest="d", seed=3, dilation=2.0, scheduling=Scheduling(kv="grow")))


def request(index: int, arrival_ns: int) -> Request:
    """A request with every field set."""
    return Request(
        index=index, arrival_ns=arrival_ns, prompt_tokens=5, output_tokens=2, max_output_tokens=4, priority=-1,
        conversation="s", hash_ids=(7, 8),
    )  # fmt: skip


def drained(path: Path, **options: object) -> list[Request | Cancellation]:
    """All events of a workload."""
    workload, events = open_workload(str(path), **options), []
    while workload.next_arrival_ns() is not None:
        events.append(workload.take())
    return events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two requests, of which the first is cancelled."""
    lines = [HEADER, request_line(request(0, 10)), request_line(request(1, 20)), cancel_line(0, 30), end_line("abc")]
    file = tmp_path / "session.jsonl"
    file.write_text("".join(lines))
    return file


def test_what_is_written_comes_back(path: Path) -> None:
    assert drained(path) == [request(0, 10), request(1, 20), Cancellation(index=0, at_ns=30)]
    workload = open_workload(str(path))
    assert isinstance(workload, RecordedWorkload)
    assert (workload.header.seed, workload.header.scheduling.kv) == (3, "grow")
    while workload.next_arrival_ns() is not None:
        workload.take()


def test_a_recording_of_a_fleet_names_it_and_no_settings(path: Path) -> None:
    header = header_line(RecordingHeader(fleet_digest="f", seed=3, dilation=2.0))
    assert header == '{"stageline_recording":1,"fleet_digest":"f","seed":3,"dilation":2.0}\n'
    path.write_text(header + request_line(msgspec.structs.replace(request(0, 10), model="m")))
    workload = open_workload(str(path))
    assert isinstance(workload, RecordedWorkload)
    assert (workload.header.fleet_digest, workload.header.plan_digest) == ("f", "")
    taken = workload.take()
    assert isinstance(taken, Request)
    assert taken.model == "m"
    path.write_text(header.replace('"fleet_digest":"f",', ""))
    with pytest.raises(BadInput, match="does not say on which plan or which fleet"):
        open_workload(str(path))


def test_a_recording_of_an_older_version_is_read(path: Path) -> None:
    """It has a user's queueing policy in a field of its own, null if there was none."""
    for policy, queueing in (("null", "shortest"), ('"my.own:Policy"', "my.own:Policy")):
        old = HEADER.replace('"queueing":"fcfs"', f'"queueing":"shortest","policy":{policy}')
        path.write_text(old + request_line(request(0, 10)))
        workload = open_workload(str(path))
        assert isinstance(workload, RecordedWorkload)
        assert workload.header.scheduling == Scheduling(kv="grow", queueing=queueing)


def test_rate_and_number_of_requests_can_be_changed(path: Path) -> None:
    assert drained(path, rate_scale="2") == [request(0, 5), request(1, 10), Cancellation(index=0, at_ns=15)]
    assert drained(path, requests=1) == [request(0, 10), Cancellation(index=0, at_ns=30)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "truncated"),
        (cancel_line(2, 40), "has not arrived"),
        (cancel_line(0, 1), "earlier"),
        ('{"arrival_ns":50,"prompt_tokens":0,"output_tokens":1,"max_output_tokens":1}', "out of range"),
        ('{"arrival_ns":50,"prompt_tokens":1,"output_tokens":1,"max_output_tokens":1,"x":1}', "unknown field"),
    ],
)
def test_damage_is_named(path: Path, line: str, reason: str) -> None:
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(BadInput, match=reason) as caught:
        drained(path)
    assert ":6" in str(caught.value)


def test_an_unknown_version_is_refused(path: Path) -> None:
    path.write_text(HEADER.replace('"stageline_recording":1', '"stageline_recording":2'))
    with pytest.raises(BadInput, match="has version 2, and this Stageline reads version 1"):
        open_workload(str(path))


@pytest.mark.parametrize("field", [f'"priority":{10**9}', f'"hash_ids":[{1 << 63}]', f'"output_hash_ids":[{1 << 200}]'])
def test_what_is_out_of_bounds_is_refused(path: Path, field: str) -> None:
    line = '{"arrival_ns":50,"prompt_tokens":1,"output_tokens":1,"max_output_tokens":1,' + field + "}\n"
    path.write_text(HEADER + line)
    with pytest.raises(BadInput, match=":2"):
        drained(path)


def test_a_last_line_that_was_not_written_whole_ends_the_recording(path: Path) -> None:
    """As a router that was killed leaves it. The same line in the middle is damage."""
    whole = HEADER + request_line(request(0, 10))
    path.write_text(whole + request_line(request(1, 20))[:30])
    workload = open_workload(str(path))
    assert isinstance(workload, RecordedWorkload)
    assert workload.take() == request(0, 10)
    assert workload.next_arrival_ns() is None
    assert "it stops at line 3" in workload.end.reason
    path.write_text(whole + request_line(request(1, 20))[:30] + "\n")
    with pytest.raises(BadInput, match=":3"):
        drained(path)
