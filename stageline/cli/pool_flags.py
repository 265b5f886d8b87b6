"""The flags of `stageline plan` and `stageline run` as a fleet file gives them: one text per pool."""

import shlex
from collections.abc import Callable, Sequence
from typing import TypeVar

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from stageline.api.fleet_file import PlanWords, RunWords
from stageline.cli.flags import SchedulingFlags
from stageline.cli.plan_flags import DesignFlags, ShapeFlags
from stageline.errors import BadInput, StagelineError

T = TypeVar("T")


class PoolFlags:
    """A FlagReader: the same flags as on the command line, with the same errors behind the pool's name."""

    def plan(self, text: str, place: str) -> PlanWords:
        """See FlagReader."""
        return _parsed(_plan_words, text, place)

    def scheduling(self, text: str, place: str) -> RunWords:
        """See FlagReader."""
        return _parsed(_run_words, text, place)


def _plan_words(*, shape: ShapeFlags = ShapeFlags(), design: DesignFlags = DesignFlags()) -> PlanWords:  # noqa: B008
    keywords = design.keywords()
    keywords.update(shape.keywords())
    return PlanWords(keywords, tuple(design.catalog_dirs))


def _run_words(*, scheduling: SchedulingFlags = SchedulingFlags()) -> RunWords:  # noqa: B008
    return RunWords(scheduling.given(), scheduling.engine, scheduling.catalog)


def _parsed(command: Callable[..., T], text: str, place: str) -> T:
    """What the command makes of the flags. Raises BadInput at `place`."""
    app = App(help_flags=(), version_flags=(), suppress_keyboard_interrupt=False)
    app.default(command)
    try:
        made: T = app(_words(text, place), exit_on_error=False, print_error=False, result_action="return_value")
    except (CycloptsError, StagelineError) as error:
        raise BadInput(place, text, " ".join(str(error).split()), "write flags as on the command line") from None
    return made


def _words(text: str, place: str) -> Sequence[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(place, text, f"not a line of flags: {error}", "quote it as your shell would") from None
