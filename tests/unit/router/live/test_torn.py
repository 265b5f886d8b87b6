"""What a killed router left is said in its file; nothing else is touched."""

from pathlib import Path

import pytest

from router.live.recorder import Recorder
from router.live.torn import REASON, close_torn
from stageline.workload import open_workload
from stageline.workload.recording import RecordedWorkload, broken_line, cancel_line, end_line, header_line, request_line
from tests.unit.router.live.test_recorder import HEADER, ONE

WHOLE = header_line(HEADER) + request_line(ONE)


@pytest.mark.parametrize("rest", ["", cancel_line(0, 9), '{"cancel": 0, "at', "\n"])
def test_a_torn_recording_says_where_it_ends(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text(WHOLE + rest)
    for _ in range(2):
        Recorder(path)
    kept = rest if rest.endswith("\n") else ""
    assert path.read_text() == WHOLE + kept + broken_line(REASON)
    workload = open_workload(str(path))
    assert isinstance(workload, RecordedWorkload)
    while workload.next_arrival_ns() is not None:
        workload.take()
    assert workload.end.reason == f"the session broke off: {REASON}"


def test_a_line_longer_than_a_piece_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.live.torn._PIECE_BYTES", 3)
    path = tmp_path / "live.jsonl"
    path.write_text(WHOLE + '{"cancel"')
    close_torn(path)
    assert path.read_text() == WHOLE + broken_line(REASON)


@pytest.mark.parametrize(
    "text",
    [WHOLE + end_line("d"), WHOLE + broken_line("x"), header_line(HEADER)[:-1], "arrival,input\n1,2\n", "{", ""],
)
def test_what_is_over_or_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text(text)
    Recorder(path)
    assert path.read_text() == text


def test_the_recording_of_a_router_that_lives_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    writer = Recorder(path)
    writer.begin(HEADER)
    writer.request(ONE)
    Recorder(path)
    assert path.read_text() == WHOLE
    writer.end("d")
    assert path.read_text() == WHOLE + end_line("d")
