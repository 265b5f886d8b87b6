"""The files of a run directory: their names and how they are read back."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from stageline.engine.types import StageRecord
from stageline.errors import BadInput
from stageline.plan.schema import Plan
from stageline.report.events import Event
from stageline.report.summary import Summary

PLAN, SUMMARY, REQUESTS, STAGES, EVENTS = "plan.json", "summary.json", "requests.jsonl", "stages.json", "events.jsonl"
RERUN = "run it again with -o"

T = TypeVar("T")


def read_stages(directory: Path) -> list[StageRecord]:
    """The elements of stages.json."""
    return _read(directory / STAGES, list[StageRecord])


def read_summary(directory: Path) -> Summary:
    """summary.json."""
    return _read(directory / SUMMARY, Summary)


def read_plan(directory: Path) -> Plan:
    """plan.json."""
    return _read(directory / PLAN, Plan)


def read_events(directory: Path) -> Iterator[Event]:
    """events.jsonl, streamed in file order; nothing when the run was made without --events."""
    path = directory / EVENTS
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Event)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, ValueError) as error:
                raise BadInput(f"{path}:{number}", None, f"no event: {error}", RERUN) from None


def unreadable(path: Path, error: OSError) -> BadInput:
    """The error of a file that is not there or can't be opened."""
    return BadInput(str(path), None, f"can't be read: {error.strerror}", "give a directory made by run -o")


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise unreadable(path, error) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(str(path), None, f"not what a run writes: {error}", RERUN) from None
