"""The `stageline` command: a registry of commands, and errors turned into one line and an exit code."""

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from cyclopts import App
from cyclopts.exceptions import CycloptsError, MissingArgumentError

from stageline import __version__
from stageline.cli.calibrate import calibrate_command
from stageline.cli.catalogue import devices_app, models_app
from stageline.cli.compare import compare_command
from stageline.cli.engines import engines_app
from stageline.cli.fleet import fleet_command
from stageline.cli.load import load_command
from stageline.cli.output import GIVEN
from stageline.cli.plan import plan_command
from stageline.cli.render import render_app
from stageline.cli.report import report_command
from stageline.cli.run import run_command
from stageline.cli.search import search_command
from stageline.cli.signals import Ended
from stageline.cli.start import interrupted_code
from stageline.cli.sweep import sweep_command
from stageline.cli.top import top
from stageline.cli.tune import tune_command
from stageline.cli.up import up_command
from stageline.errors import DISK_ERRORS, StagelineError, UsageError
from stageline.wire.environment import prepare

app = App(
    name="stageline",
    version=__version__,
    help="An exact emulator of distributed LLM serving clusters.",
    suppress_keyboard_interrupt=False,
)
_OBSERVE = "Run a workload against a server and keep what calibrate needs; see docs/twin.md."  # aiohttp is slow to load
app.command(plan_command, name="plan")
app.command(fleet_command, name="fleet")
app.command(run_command, name="run")
app.command(up_command, name="up")
app.command(load_command, name="load")
app.command("stageline.cli.observe:observe_command", name="observe", help=_OBSERVE)
app.command(report_command, name="report")
app.command(compare_command, name="compare")
app.command(top)
app.command(calibrate_command, name="calibrate")
app.command(search_command, name="search")
app.command(sweep_command, name="sweep")
app.command(tune_command, name="tune")
_CLUSTERS = {  # by name, with its help here: the Docker SDK is slow to load
    "down": "End a cluster that up has started, of local processes or in Docker.",
    "ps": "List the processes or containers of a cluster.",
    "logs": "Print what the parts of a cluster have logged.",
    "stats": "Show the CPU and the memory of every process or container of a cluster.",
    "cluster": "Break and mend parts of a running cluster.",
}
for _name, _help in _CLUSTERS.items():
    _attribute = "cluster_app" if _name == "cluster" else _name
    app.command(f"stageline.cli.cluster:{_attribute}", name=_name, help=_help)
app.command(render_app)
app.command(models_app)
app.command(devices_app)
app.command(engines_app)


NEGATIVE = re.compile(r"-[0-9][0-9.a-zA-Zµ/%]*")
OF_THE_PLAN = frozenset(
    {
        "--max-model-len", "--gpu-memory-utilization", "--num-gpu-blocks-override", "--block-size", "--kv-cache-dtype",
        "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel",
    }
)  # fmt: skip


def invoke(argv: Sequence[str]) -> int:
    """Run one command and return its exit code. An error of the user prints one line, never a traceback."""
    GIVEN.set(tuple(argv))
    try:
        result = app(list(argv), exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        return _complain(_missing(error) or f"{error}{_dash_hint(argv)}{_plan_hint(argv)}", UsageError.exit_code)
    except StagelineError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        _close_stdout()
        return 0  # the reader of the pipe has seen enough
    except OSError as error:
        if error.errno not in DISK_ERRORS or error.filename is not None:
            raise
        _close_stdout()
        return _complain(f"the output can't be written: {error.strerror}; make room, or send it elsewhere", 1)
    except KeyboardInterrupt as end:
        return end.exit_code if isinstance(end, Ended) else interrupted_code(argv)
    return result if isinstance(result, int) else 0


def _missing(error: CycloptsError) -> str:
    """What to say when a required argument or flag is not there at all; empty for other errors."""
    if not isinstance(error, MissingArgumentError) or error.argument is None or error.keyword or error.argument.tokens:
        return ""
    command = " ".join(["stageline", *(error.command_chain or ())])
    return f"{error.argument.name} is missing; {command} --help lists what it needs"


def _dash_hint(argv: Sequence[str]) -> str:
    """How to write a value that begins with a dash, which the parser takes for a flag."""
    for flag, value in pairwise(argv):
        if flag.startswith("--") and NEGATIVE.fullmatch(value):
            return f" A value that begins with a dash is written {flag}={value}."
    return ""


def _plan_hint(argv: Sequence[str]) -> str:
    """Which of a serving command's flags a run can't change, because the plan is made with them."""
    given = [word.partition("=")[0] for word in argv] if argv[:1] in (["run"], ["up"]) else []
    found = [flag for flag in given if flag in OF_THE_PLAN]
    return f" {', '.join(found)}: fixed when the plan is made; give it to stageline plan." if found else ""


def _close_stdout() -> None:
    """Discard what is left in its buffer, so that the interpreter's last flush succeeds."""
    with contextlib.suppress(OSError, ValueError):  # a stdout without a file, in tests
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"stageline: {' '.join(text.split())}\n")
    return code


def main() -> None:
    """Run the command that the process was called with."""
    prepare()
    if sys.stdout is None:  # closed by the caller
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
    sys.exit(invoke(sys.argv[1:]))


if __name__ == "__main__":
    main()
