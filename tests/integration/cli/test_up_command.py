"""`stageline up`: what its flags become."""

from pathlib import Path

import msgspec
import pytest

from stageline.cli.main import invoke as run
from stageline.cluster.local import LocalOptions
from stageline.engine.settings import Scheduling
from stageline.runtime.deployment import Document


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[LocalOptions]:
    """The options of the clusters that would have been started."""
    seen: list[LocalOptions] = []

    async def serve(document: Document, options: LocalOptions, dilation: float, name: str) -> None:
        seen.append(options)

    monkeypatch.setattr("stageline.cli.up._serve", serve)
    return seen


def test_batching_slo_takes_its_objective_from_slo(
    started: list[LocalOptions], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["up", str(root / "tests/data/fewest.plan.json"), "--batching", "slo"]
    assert run(command) == 2
    assert "--slo tpot=50ms" in capsys.readouterr().err
    assert run([*command, "--slo", "tpot=40ms"]) == 0
    flags = dict(flag.split("=", 1) for flag in started[0].router_flags)
    scheduling = msgspec.json.decode(flags["--scheduling"], type=Scheduling)
    assert (scheduling.batching, scheduling.tpot_slo_ns) == ("slo", 40_000_000)


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port", "--metrics-port"])
@pytest.mark.parametrize("port", ["65536", "-2"])
def test_ports_that_there_are_not(
    flag: str, port: str, started: list[LocalOptions], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", str(root / "tests/data/fewest.plan.json"), f"{flag}={port}"]) == 2
    said = capsys.readouterr().err
    assert f"{flag}: not between" in said and f"(got {port}); give another port" in said
    assert not started


@pytest.mark.parametrize("seed", ["-1", str(1 << 63)])
def test_seeds_that_no_session_can_have(
    seed: str, started: list[LocalOptions], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", str(root / "tests/data/fewest.plan.json"), f"--seed={seed}"]) == 2
    assert f"--seed: not between 0 and 2**63 - 1 (got {seed})" in capsys.readouterr().err
    assert not started
