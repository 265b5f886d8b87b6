"""Recordings of live sessions: none is lost."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.live.recorder import Recorder
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.errors import UsageError
from stageline.workload import open_workload
from stageline.workload.recording import RecordedWorkload, RecordingHeader

HEADER = RecordingHeader(plan_digest="d", seed=0, dilation=1.0, scheduling=Scheduling())
ONE = Request(index=0, arrival_ns=5, prompt_tokens=1, output_tokens=1, max_output_tokens=1)


def recorded(path: Path, sessions: int) -> list[Path | None]:
    """The files of one router's sessions."""
    recorder, files = Recorder(path), []
    for _ in range(sessions):
        recorder.begin(HEADER)
        recorder.request(ONE)
        files.append(recorder.end("digest"))
    return files


def test_a_router_that_comes_back_keeps_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    first = recorded(path, 2)
    assert first == [path, tmp_path / "live.jsonl.1"]
    kept = path.read_text()
    assert recorded(path, 1) == [tmp_path / "live.jsonl.2"]
    assert path.read_text() == kept


def test_a_session_without_requests_leaves_no_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "live.jsonl")
    recorder.begin(HEADER)
    assert recorder.end("digest") is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "reason"), [("", "is a directory"), ("missing/live.jsonl", "there is no directory")])
def test_a_place_that_takes_no_file_is_refused_at_the_start(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Recorder(tmp_path / name)


def test_a_full_disk_ends_the_recording_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(Path("/dev/full.jsonl"))
    recorder._open = lambda: Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    recorder.begin(HEADER)
    recorder.request(ONE)
    recorder.cancel(0, 7)
    assert recorder.end("digest") is None
    assert recorder.failures == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_no_part_of_a_line_stays_when_the_disk_is_full(tmp_path: Path) -> None:
    """The system takes what still fits."""
    path = tmp_path / "live.jsonl"
    recorder = Recorder(path)
    recorder.begin(HEADER)
    recorder.request(ONE)
    kept = path.read_bytes()
    with limited_file_size(len(kept) + 20):
        recorder.request(ONE)
        recorder.cancel(0, 7)
    assert recorder.end("digest") is None
    assert path.read_bytes() == kept
    assert recorder.failures == 1


def test_a_session_that_breaks_off_says_why_in_its_last_line(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "live.jsonl")
    recorder.begin(HEADER)
    recorder.request(ONE)
    path = recorder.end(None, "stage 1 was lost")
    assert path is not None
    workload = open_workload(str(path))
    assert isinstance(workload, RecordedWorkload)
    assert workload.take() == ONE
    assert workload.next_arrival_ns() is None
    assert workload.end.digest is None
    assert workload.end.reason == "the session broke off: stage 1 was lost"


@contextlib.contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """No file may grow beyond that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
