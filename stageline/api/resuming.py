"""The file that keeps finished trials, so that an interrupted search can be continued."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stageline.api.files import read_file
from stageline.api.trials import Candidate, RunTrials, Trial
from stageline.errors import BadInput, UsageError


class Runs(NamedTuple):
    """How trials are run: where, how many at a time where one waits for the other, and who is told how many are done
    of how many. `kept` is the file that keeps them.
    """

    run: RunTrials
    width: int = 1
    kept: Path | None = None
    watch: Callable[[int, int], None] = lambda done, total: None


class CountedRuns:
    """Runs candidates, and tells how many trials are done of those that are known to come."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._done = 0

    def __call__(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """All trials in the order of the candidates. Those in the file are not run again; new ones are added to it."""
        path = self._runs.kept
        done = _read(path) if path else {}
        missing = [c for c in candidates if c.key() not in done]
        total = self._done + len(candidates)
        finished = total - len(missing)
        self._runs.watch(finished, total)
        for trial in self._runs.run(missing) if missing else ():
            done[trial.key] = trial
            if path:
                _append(path, trial)
            finished += 1
            self._runs.watch(finished, total)
        self._done = total
        return [done[c.key()] for c in candidates]


def _append(path: Path, trial: Trial) -> None:
    try:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")
    except OSError as error:
        raise UsageError(f"--resume {path}: can't be written: {error.strerror}") from None


def _read(path: Path) -> dict[str, Trial]:
    """Trials of an earlier search, by key; a last line that was cut off is run again."""
    if not path.exists():
        return {}
    found: dict[str, Trial] = {}
    for number, line in enumerate(read_file(path).split(b"\n")[:-1], 1):
        try:
            trial = msgspec.json.decode(line, type=Trial)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}:{number}", None, f"not a trial: {error}", "give another --resume file") from None
        found[trial.key] = trial
    return found
