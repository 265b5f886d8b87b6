"""The digest of a run: what must be equal between engines, machines and replays.

sha256 over the canonical lines of requests.jsonl in the order of their `index`, followed by the canonical lines of the
elements of stages.json in the order of (`replica`, `stage`); every line ends in one line break.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from stageline.engine.types import StageRecord
from stageline.errors import BadInput
from stageline.report.canonical import canonical_line
from stageline.report.reorder import ReorderBuffer
from stageline.report.rundir import RERUN, read_stages, unreadable


class Digest:
    """Computed during a run. Holds only the lines of requests that left before an earlier one."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._lines = ReorderBuffer(self._hash.update)

    def request(self, index: int, line: bytes) -> None:
        """Adds the canonical line of one request; requests may come in any order."""
        self._lines.put(index, line)

    def finish(self, stages: Iterable[StageRecord]) -> str:
        """The hex digest, after the last request."""
        self._lines.flush()
        for record in sorted(stages, key=lambda r: (r.replica, r.stage)):
            self._hash.update(canonical_line(record))
        return self._hash.hexdigest()


def digest_of(directory: Path) -> str:
    """The digest of a run directory, recomputed from requests.jsonl and stages.json. BadInput when they are damaged."""
    state = hashlib.sha256()
    lines = ReorderBuffer(state.update)
    for place, text in _lines(directory / "requests.jsonl"):
        record = _decoded(text, place)
        if not isinstance(record, dict) or not isinstance(record.get("index"), int):
            raise BadInput(place, text[:80].decode("utf-8", "replace"), "not a request record", RERUN)
        lines.put(record["index"], canonical_line(record))
    lines.flush()
    for stage in sorted(read_stages(directory), key=lambda r: (r.replica, r.stage)):
        state.update(canonical_line(stage))
    return state.hexdigest()


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                yield f"{path}:{number}", text.rstrip()
    except OSError as error:
        raise unreadable(path, error) from None


def _decoded(text: bytes, place: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(place, text[:80].decode("utf-8", "replace"), f"not JSON: {error}", RERUN) from None
