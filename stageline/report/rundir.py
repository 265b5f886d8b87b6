"""The files of a run directory: their names and how they are read back."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from stageline.engine.fleet import Fleet
from stageline.engine.types import RequestRecord, StageRecord
from stageline.errors import BadInput
from stageline.plan.schema import Plan
from stageline.report.events import StageEvent
from stageline.report.groups import Formed, Part, Parts
from stageline.report.pools import RunPools
from stageline.report.summary import Summary

PLAN_FILE, SUMMARY_FILE, REQUESTS_FILE, STAGES_FILE, EVENTS_FILE, MICROBATCHES_FILE, TUNE_FILE = (
    "plan.json",
    "summary.json",
    "requests.jsonl",
    "stages.json",
    "events.jsonl",
    "microbatches.jsonl",
    "tune.json",
)
FLEET_FILE = "fleet.json"  # in the plan's place
RUN_FILES = (SUMMARY_FILE, STAGES_FILE, EVENTS_FILE, MICROBATCHES_FILE, REQUESTS_FILE, TUNE_FILE, PLAN_FILE, FLEET_FILE)
RERUN = "run it again with -o"

T = TypeVar("T")


def read_stages(directory: Path) -> list[StageRecord]:
    """The elements of stages.json."""
    return _read(directory / STAGES_FILE, list[StageRecord])


def read_summary(directory: Path) -> Summary:
    """summary.json."""
    return _read(directory / SUMMARY_FILE, Summary)


def read_run_pools(directory: Path) -> RunPools:
    """plan.json, or fleet.json."""
    fleet = directory / FLEET_FILE
    return RunPools(_read(fleet, Fleet) if fleet.exists() else _read(directory / PLAN_FILE, Plan))


def read_requests(directory: Path) -> Iterator[RequestRecord]:
    """requests.jsonl, streamed in the order of arrival."""
    path = directory / REQUESTS_FILE
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from None
    with file:
        yield from _records(path, file, msgspec.json.Decoder(RequestRecord))


def read_events(directory: Path) -> Iterator[StageEvent]:
    """events.jsonl, streamed in file order; nothing when the run was made without --events."""
    path = directory / EVENTS_FILE
    if not path.exists():
        return
    with path.open("rb") as file:
        yield from _records(path, file, msgspec.json.Decoder(StageEvent))


def read_parts(directory: Path) -> Parts:
    """microbatches.jsonl; nothing when the run was made without --events."""
    path = directory / MICROBATCHES_FILE
    if not path.exists():
        return {}
    with path.open("rb") as file:
        formed = _records(path, file, msgspec.json.Decoder(Formed))
        return {(m.replica, m.number): Part(m.group, m.requests) for m in formed}


def unreadable(path: Path, error: OSError) -> BadInput:
    """The error of a file that is not there or can't be opened."""
    return BadInput(str(path), None, f"can't be read: {error.strerror}", "give a directory made by stageline run -o")


def _records(path: Path, lines: Iterable[bytes], decoder: "msgspec.json.Decoder[T]") -> Iterator[T]:
    """One record per line; the first bad one is named."""
    for number, line in enumerate(lines, start=1):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadInput(f"{path}:{number}", None, f"not what a run writes: {error}", RERUN) from None


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise unreadable(path, error) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(str(path), None, f"not what a run writes: {error}", RERUN) from None
