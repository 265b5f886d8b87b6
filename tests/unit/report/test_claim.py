"""What a run refuses to write into: a directory with something of the user's, or with another run under way."""

from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from stageline.errors import BadInput, Busy
from stageline.report.claim import claim
from stageline.report.run_writer import RunWriter
from tests.unit.report.test_run_writer import PLAN, write


def test_an_earlier_run_may_be_replaced(tmp_path: Path) -> None:
    first = write(tmp_path / "run", [0, 1, 2])
    assert write(tmp_path / "run", [0, 1, 2]) == first
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "plan.json", "summary.json", "requests.jsonl", "stages.json"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["plan.json", "events.jsonl", "requests.jsonl", "summary.json", "notes.txt"])
def test_what_no_run_wrote_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(BadInput, match="not a run's; give -o a new or empty directory"):
        RunWriter(PLAN, tmp_path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, "{}")]


@pytest.mark.parametrize("name", ["plan.json", "requests.jsonl"])
def test_an_input_inside_an_earlier_run_is_left_alone(tmp_path: Path, name: str) -> None:
    """By its own path and by a link to it."""
    run = tmp_path / "run"
    write(run, [0])
    before = (run / name).read_bytes()
    (tmp_path / "link").symlink_to(run / name)
    for given in (run / ".." / "run" / name, tmp_path / "link"):
        with pytest.raises(BadInput, match="would overwrite its own input"):
            RunWriter(PLAN, run, inputs=[tmp_path / "absent", given])
    assert (run / name).read_bytes() == before
    assert (run / "summary.json").exists()


def test_two_runs_at_once(tmp_path: Path) -> None:
    """The second is refused and changes nothing; the first ends as if it were alone."""
    with RunWriter(PLAN, tmp_path):
        with pytest.raises(Busy, match="another run is writing into it"):
            RunWriter(PLAN, tmp_path)
        assert (tmp_path / "requests.jsonl").exists()
    with pytest.raises(BadInput):  # not locked any more
        claim(tmp_path)


def test_the_command_keeps_its_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, trace = tmp_path / "plan.json", tmp_path / "requests.jsonl"
    plan.write_bytes(PLAN.canonical())
    trace.write_text('{"arrival_ns":0,"prompt_tokens":3,"output_tokens":2}\n')
    before = plan.read_bytes(), trace.read_bytes()
    for workload, says in ((str(trace), "own input"), ("poisson:rate=1,requests=2,input=3,output=2", "own input")):
        assert stageline(["run", str(plan), "--workload", workload, "-o", str(tmp_path)]) == 2
        assert says in capsys.readouterr().err
    assert (plan.read_bytes(), trace.read_bytes()) == before
    assert len(list(tmp_path.iterdir())) == 2
    assert stageline(["run", str(plan), "--workload", workload, "-o", ""]) == 2
    assert "it is empty" in capsys.readouterr().err
