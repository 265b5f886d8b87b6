"""Recorded sessions of fleets are run again as they were; those of plans and of fleets are told apart."""

from pathlib import Path

import msgspec
import pytest

import stageline
from stageline.engine.fleet import Fleet, Pool
from stageline.engine.served import serve
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from stageline.testing import request, run_fleet, uniform_plan
from stageline.workload.recording import RecordingHeader, end_line, header_line, request_line

PLAN = uniform_plan(2, model="m")
CACHED = Scheduling(prefix_cache=True, hash_block_tokens=32, snapshot_tokens=32)
FLEET = Fleet(
    pools=(
        Pool(name="cached", plan=PLAN, scheduling=CACHED),
        Pool(name="other", plan=msgspec.structs.replace(PLAN, model="n", replicas=2)),
    ),
    balance="prefix",
)
REQUESTS = [request(i, 50 * i, prompt_tokens=70, hash_ids=(1, 2), model="mn"[i % 2]) for i in range(6)]
OF_FLEET = RecordingHeader(fleet_digest=FLEET.digest(), seed=3, dilation=1.0)
OF_PLAN = RecordingHeader(plan_digest=PLAN.digest(), seed=3, dilation=1.0)


def recorded(path: Path, header: RecordingHeader) -> Path:
    lines = [header_line(header), *map(request_line, REQUESTS), end_line("0")]
    path.write_text("".join(lines))
    return path


def test_a_recording_of_a_fleet_is_run_with_the_settings_of_its_file(tmp_path: Path) -> None:
    """The blocks that its identities stand for, too."""
    run = stageline.run(FLEET, recorded(tmp_path / "s.jsonl", OF_FLEET), seed=3)
    wanted = run_fleet(serve(FLEET), REQUESTS, seed=3)
    assert run.summary.digest == wanted.digest
    assert sum(record.cached_tokens or 0 for record in wanted.requests) > 0


def test_a_recording_goes_with_what_it_was_recorded_on(tmp_path: Path) -> None:
    of_fleet, of_plan = recorded(tmp_path / "f.jsonl", OF_FLEET), recorded(tmp_path / "p.jsonl", OF_PLAN)
    for document, path, reason in (
        (FLEET, of_plan, "the session was recorded on a plan"),
        (PLAN, of_fleet, "the session was recorded on a fleet"),
    ):
        with pytest.raises(UsageError, match=reason):
            stageline.run(document, path, seed=3)
    with pytest.raises(UsageError, match="recorded with seed 3: give --seed 3"):
        stageline.run(FLEET, of_fleet)
