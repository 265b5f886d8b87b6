"""`stageline load` from the command line: files, figures, exit codes, what goes where."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from tests.fake_openai import Fake, serving_beside

SPEC = "poisson:rate=500,requests=40,input=20,output=6"
EMULATED = {"queue_s": 0.001, "ttft_s": 0.010, "e2e_s": 0.060}


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A server that emulates at dilation 2."""
    with serving_beside(Fake(dilation="2", emulated=EMULATED)) as server:
        yield server


class Page(HTMLParser):
    """What an HTML page refers to, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags = set[str]()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        """See HTMLParser."""
        self.text += data


def test_tables_and_files(fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    flags = ["--warmup", "4", "--ramp", "1:30ms,2", "--slo", "e2e=10s", "-o", str(out)]
    assert stageline(["load", "--url", fake.url, "--workload", SPEC, *flags]) == 0
    printed = capsys.readouterr()
    assert "36 of 36 finished" in printed.out
    assert "dilation 2" in printed.out
    assert "rate x 2 to the end" in printed.out
    assert "SLO met" in printed.out
    assert printed.err == ""  # quiet where there is no terminal
    assert {path.name for path in out.iterdir()} == {"summary.json", "requests.csv", "report.html"}
    assert len((out / "requests.csv").read_text().splitlines()) == 41
    page = Page((out / "report.html").read_text())
    assert page.links == []  # nothing beside the page
    assert "script" not in page.tags
    assert {"svg", "table"} <= page.tags
    assert "SLO met" in page.text


def test_json_has_both_clocks(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["load", "--url", f"{fake.url}/v1/", "--workload", SPEC, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["dilation"], summary["clock"], summary["model"]) == (2, "emulated", "fake")
    emulated, wall = summary["emulated"], summary["wall"]
    assert wall["duration_s"] == pytest.approx(2 * emulated["duration_s"])
    # What the server says, plus what the request waited here.
    assert emulated["latencies"]["tpot_s"]["p50"] == pytest.approx(0.010)
    assert emulated["latencies"]["ttft_s"]["p50"] >= 0.010
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        assert wall["latencies"][name].keys() == {"mean", "p50", "p90", "p95", "p99", "max"}
    assert summary["calls"] == {
        "total": 40, "finished": 40, "rejected": 0, "failed": 0, "cancelled": 0, "incomplete": 0
    }  # fmt: skip
    assert [len(call["prompt"]) for call in fake.calls] == [20] * 40
    assert {call["max_tokens"] for call in fake.calls} == {6}


def test_a_trace_is_sent_with_its_own_lengths(fake: Fake, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(root / "examples/traces/sample_azure.csv")
    flags = ["--requests", "5", "--rate-scale", "100000", "--json"]
    assert stageline(["load", "--url", fake.url, "--workload", trace, *flags]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert asked["calls"]["finished"] == 5
    assert asked["other_prompt_lengths"] == 0
    assert asked["prompt_tokens"] == sum(len(call["prompt"]) for call in fake.calls) > 5


def test_a_missed_objective(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workload", SPEC, "--slo", "tpot=9ms"]
    assert stageline(["load", "--url", fake.url, *flags]) == 3
    assert "SLO missed: TPOT" in capsys.readouterr().err
    assert stageline(["load", "--url", fake.url, *flags, "--wall", "--json"]) in (0, 3)  # on the wall it depends
    assert json.loads(capsys.readouterr().out)["clock"] == "wall"


def test_rejected_and_failed_calls_are_counted(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.misbehave = lambda number: {1: "refuse", 2: "refuse", 5: "cut", 6: "error"}.get(number, "")
    fake.retry_after = "0.01"
    workload = "closed:users=2,requests=20,input=20,output=6"
    flags = ["--slo", "e2e=60s,attainment=0.9", "--json"]
    assert stageline(["load", "--url", fake.url, "--workload", workload, *flags]) == 3  # 16 of 20
    summary = json.loads(capsys.readouterr().out)
    assert summary["reasons"] == {"HTTP 429": 2, "cut": 1, "error event": 1}
    assert (summary["calls"]["rejected"], summary["calls"]["failed"]) == (2, 2)
    assert "error event: a stage was lost" in summary["remarks"]
    assert summary["slo"]["attainment"] == 0.8


def test_when_nothing_finishes_the_run_has_failed(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.misbehave = lambda number: "cut"
    assert stageline(["load", "--url", fake.url, "--workload", SPEC]) == 1
    assert "no call of 40 finished: cut" in capsys.readouterr().err


def test_replies_of_other_lengths_are_told(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.short_by = 2
    assert stageline(["load", "--url", fake.url, "--workload", SPEC]) == 0
    assert "40 replies are longer or shorter" in capsys.readouterr().out


def test_a_terminal_sees_a_bar(fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    assert stageline(["load", "--url", fake.url, "--workload", SPEC, "--json"]) == 0
    printed = capsys.readouterr()
    assert "in flight" in printed.err
    json.loads(printed.out)


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert stageline(["load", "--url", f"http://127.0.0.1:{port}", "--workload", SPEC]) == 1
    error = capsys.readouterr().err
    assert f"no server answers at http://127.0.0.1:{port} (" in error
    assert "stageline up" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--url", "localhost:8000"], "--url"),
        (["--url", "http://h", "--warmup", "x"], "--warmup: neither"),
        (["--url", "http://h", "--warmup", "99999999999"], "--warmup: too large"),
        (["--url", "http://h", "--ramp", "1,2"], "--ramp"),
        (["--url", "http://h", "--connections", "0"], "--connections"),
        (["--url", "http://h", "--turns", "0"], "--turns"),
        (["--url", "http://h", "--timeout", "0s"], "--timeout: must be longer than 0"),
        (["--url", "http://h", "--duration", "0s"], "--duration: must be longer than 0"),
        (["--url", "http://h", "--slo", "x=1"], "--slo"),
        (["--url", "http://h", "--extra-body", "{"], "--extra-body"),
        (["--url", "https://h", "--tls-ca", "missing.pem"], "--tls-ca"),
        (["--url", "http://h", "--think", "soon"], "--think"),
        (["--url", "http://h", "--workload", "closed:users=1", "--ramp", "2"], "closed loop"),
    ],
)
def test_bad_usage(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    workload = [] if "--workload" in flags else ["--workload", SPEC]
    assert stageline(["load", *flags, *workload]) == 2
    assert says in capsys.readouterr().err


def test_ctrl_c_ends_with_what_there_is(fake: Fake, root: Path, tmp_path: Path) -> None:
    fake.misbehave = lambda number: "hang" if number == 3 else ""
    # A test run in the background starts with SIGINT ignored, and a client that it starts would inherit that.
    code = "import signal; signal.signal(2, signal.default_int_handler); from stageline.cli.main import main; main()"
    command = [sys.executable, "-c", code, "load", "--url", fake.url, "--json", "-o", str(tmp_path)]
    workload = ["--workload", "constant:rate=100,requests=4,input=5,output=6"]
    client = subprocess.Popen([*command, *workload], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(root)})
    fake.hung.wait()
    client.send_signal(signal.SIGINT)
    out, _ = client.communicate(timeout=60)
    assert client.returncode == 130
    summary = json.loads(out)
    assert summary["complete"] is False
    assert (summary["calls"]["finished"], summary["calls"]["incomplete"]) == (3, 1)
    assert (tmp_path / "report.html").exists()
