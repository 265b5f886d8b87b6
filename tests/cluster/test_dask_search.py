"""A search on a real Dask cluster: worker processes on loopback give the trials that this process gives."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stageline.api import dask_trials
from stageline.cli.main import invoke as run

LOAD = "poisson:rate=4,input=256,output=16"
SEARCH = ["search", "llama-3.1-70b", "h100-sxm", "--devices", "4", "--workload", LOAD, "--requests", "10", "--json"]

CLUSTER = """
import distributed
if __name__ == "__main__":
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """In a process of its own, as its workers are; it ends when its stdin is closed."""
    script = tmp_path_factory.mktemp("dask") / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, cwd=script.parent, env={"PYTHONPATH": str(Path(dask_trials.__file__).parents[2]), "PATH": ""},
    ) as process:  # fmt: skip
        assert process.stdout and process.stdin
        yield process.stdout.readline().strip()
        process.stdin.close()


def test_workers_give_the_same_trials(scheduler: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run([*SEARCH, "--jobs", "1"]) == 0
    here = json.loads(capsys.readouterr().out)
    kept = tmp_path / "trials.jsonl"
    assert run([*SEARCH, "--scheduler", scheduler, "--resume", str(kept)]) == 0
    assert json.loads(capsys.readouterr().out) == here
    assert len(kept.read_text().splitlines()) == 5
    assert run([*SEARCH, "--scheduler", "tcp://127.0.0.1:1", "--resume", str(kept)]) == 0  # nothing is left to run


def test_a_failure_on_a_worker_says_what_workers_need(
    scheduler: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_trials, "run_trial", int)  # of a candidate: a TypeError over there
    assert run([*SEARCH, "--scheduler", scheduler]) == 1
    assert "workers need this version of stageline" in capsys.readouterr().err


def test_no_scheduler_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_trials, "SCHEDULER_S", 0.5)
    assert run([*SEARCH, "--scheduler", "tcp://127.0.0.1:1"]) == 1
    assert "no Dask scheduler answers" in capsys.readouterr().err


def test_no_dask_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run([*SEARCH, "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert "pip install 'stageline[dask]'" in capsys.readouterr().err


def test_processes_here_or_workers_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SEARCH, "--scheduler", "tcp://127.0.0.1:1", "--jobs", "2"]) == 2
    assert "--jobs" in capsys.readouterr().err
