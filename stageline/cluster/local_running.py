"""A cluster of local processes that another command has started, reached over its socket."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stageline.cluster import sockets
from stageline.cluster.control import Answer, ControlCall
from stageline.cluster.parts import Usage
from stageline.errors import RunFailed, StagelineError, Unavailable, UsageError

_ANSWER_S = 10.0
_ACT_S = 90.0  # a restart waits until the server listens
_BETWEEN_SAMPLES_S = 1.0
_PROC = Path("/proc")


class LocalRunning:
    """See `parts.Running`."""

    kind = "local processes"

    def __init__(self, name: str) -> None:
        self.name = name

    def rows(self) -> list[dict[str, str | int]]:
        """One row per process."""
        states = (answer.state for answer in self._ask(ControlCall(verb="rows")))
        return [msgspec.structs.asdict(state) for state in states if state is not None]

    def logs(self, part: str, tail: int, *, follow: bool) -> Iterator[tuple[str, str]]:
        """What its servers wrote to stderr, at most the last 1,000 lines of each."""
        for answer in self._ask(ControlCall(verb="logs", part=part, tail=tail, follow=follow)):
            yield answer.part, answer.line or ""

    def usage(self) -> list[Usage]:
        """CPU and resident memory, from /proc. Raises UsageError where there is none."""
        if not _PROC.is_dir():
            raise UsageError("stats of local processes needs Linux; here, look at the process ids of stageline ps")
        pids = {str(row["part"]): int(row["pid"]) for row in self.rows() if row["pid"]}
        began = time.monotonic()
        first = {part: _sample(pid) for part, pid in pids.items()}
        time.sleep(_BETWEEN_SAMPLES_S)
        passed = time.monotonic() - began
        found = []
        for part, pid in pids.items():
            before, after = first[part], _sample(pid)
            if before and after:
                found.append(Usage(part, (after[0] - before[0]) / passed, after[1]))
        return found

    def act(self, verb: str, part: str) -> str:
        """See `control`."""
        return self._last(ControlCall(verb=verb, part=part)).part

    def down(self) -> str:
        """Ends `stageline up` as Ctrl-C does."""
        return self._last(ControlCall(verb="down")).line or ""

    def _last(self, call: ControlCall) -> Answer:
        answers = [*self._ask(call)]
        if not answers:
            raise Unavailable(f"cluster {self.name!r} ended before it answered")
        return answers[-1]

    def _ask(self, call: ControlCall) -> Iterator[Answer]:
        patience_s = _ANSWER_S if call.verb in ("rows", "logs") else _ACT_S
        try:
            with sockets.reach(self.name) as connection:
                connection.settimeout(None if call.follow else patience_s)
                connection.sendall(msgspec.json.encode(call) + b"\n")
                for line in connection.makefile("rb"):
                    answer = msgspec.json.decode(line, type=Answer)
                    if answer.error:
                        raise _refusal(answer)
                    yield answer
        except (TimeoutError, BlockingIOError):
            raise Unavailable(
                f"cluster {self.name!r} does not answer; if its stageline up is stopped (Ctrl-Z), continue that with fg"
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise Unavailable(f"cluster {self.name!r} can't be reached: {error}") from None


def _refusal(answer: Answer) -> StagelineError:
    kind: Any = UsageError if answer.exit_code == UsageError.exit_code else RunFailed
    refusal: StagelineError = kind(answer.error)
    return refusal


def _sample(pid: int) -> tuple[float, int] | None:
    """CPU seconds and resident bytes of a process; None if it is gone."""
    try:
        times = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int((_PROC / f"{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
