"""Runs that do not come to their end: what they leave, what they say, and how they exit."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from tests.integration.cli.conftest import SPEC
from tests.integration.cli.test_main import COMMAND, ENVIRONMENT

SIGNALS = """import os, signal
class Sends:
    def key(self, request):
        if request.index == 20:
            os.kill(os.getpid(), signal.NAME)
        return 0
"""


def summary_of(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((out / "summary.json").read_text())
    return found


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_a_signal_closes_the_directory(
    name: str, code: int, plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"sends_{name}.py").write_text(SIGNALS.replace("NAME", name))
    monkeypatch.syspath_prepend(tmp_path)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    out = tmp_path / "run"
    words = ["run", plan, "--workload", SPEC, "--queueing", f"sends_{name}:Sends", "-o", str(out)]
    assert stageline(words) == code
    assert summary_of(out)["complete"] is False
    assert len((out / "requests.jsonl").read_text().splitlines()) > 0
    assert {path.name for path in out.iterdir()} == {"plan.json", "summary.json", "requests.jsonl"}
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def test_a_killed_run_is_not_taken_for_a_complete_one(plan: str, tmp_path: Path) -> None:
    """Nor does it stand in the way of the next."""
    out = tmp_path / "run"
    assert stageline(["run", plan, "--workload", SPEC, "-o", str(out)]) == 0
    (tmp_path / "kills.py").write_text(SIGNALS.replace("NAME", "SIGKILL"))
    words = ["run", plan, "--workload", SPEC, "--queueing", "kills:Sends", "-o", str(out)]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(tmp_path)])}
    assert subprocess.run([*COMMAND, *words], env=environment, check=False).returncode == -signal.SIGKILL
    assert summary_of(out)["complete"] is False
    assert stageline(["run", plan, "--workload", SPEC, "-o", str(out)]) == 0
    assert summary_of(out)["complete"] is True


@pytest.mark.parametrize(("limit", "left"), [(20_000, {"plan.json", "summary.json", "requests.jsonl"}), (600, set())])
def test_a_full_disk_names_the_directory(limit: int, left: set[str], plan: str, tmp_path: Path) -> None:
    """In the middle of the run, and before it."""
    out = tmp_path / "run"
    words = ["run", plan, "--workload", SPEC.replace("requests=30", "requests=300"), "-o", str(out)]
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {resource.RLIM_INFINITY}));"
        "from stageline.cli.main import main; main()"
    )
    command = [sys.executable, "-c", limited, *words]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=False)
    told = done.stderr.decode()
    assert done.returncode in (1, 2)
    assert f"-o {out}: can't be written: File too large" in told
    assert len(told.splitlines()) == 1
    assert {path.name for path in out.iterdir()} == left
    if left:
        assert summary_of(out)["complete"] is False
    assert stageline([*words]) == 0
