"""The `stageline` command: a registry of commands, and errors turned into one line and an exit code."""

import sys
from collections.abc import Sequence

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from stageline import __version__
from stageline.cli.calibrate import calibrate
from stageline.cli.catalogue import devices_app, models_app
from stageline.cli.compare import compare
from stageline.cli.load import load
from stageline.cli.plan import plan
from stageline.cli.render import render_app
from stageline.cli.report import report
from stageline.cli.run import run as run_command
from stageline.cli.search import search
from stageline.cli.top import top
from stageline.cli.up import up
from stageline.errors import StagelineError, UsageError
from stageline.wire.environment import prepare

app = App(name="stageline", version=__version__, help="An exact emulator of distributed LLM serving clusters.")
app.command(plan)
app.command(run_command, name="run")
app.command(up)
app.command(load)
app.command(report)
app.command(compare)
app.command(top)
app.command(calibrate)
app.command(search)
_DOCKER = {  # by name, with its help here: the Docker SDK is slow to load
    "down": "Remove a cluster that up --docker started.",
    "ps": "List the containers of a cluster.",
    "logs": "Print what the parts of a cluster have logged.",
    "stats": "Show the CPU and the memory of every container of a cluster.",
}
for _name, _help in _DOCKER.items():
    app.command(f"stageline.cli.docker:{_name}", name=_name, help=_help)
app.command("stageline.cli.docker:cluster_app", name="cluster", help="Break and mend parts of a cluster in Docker.")
app.command(render_app)
app.command(models_app)
app.command(devices_app)


def run(argv: Sequence[str]) -> int:
    """Run one command; the exit code. Users never see a traceback for a mistake of theirs."""
    try:
        result = app(list(argv), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _complain(str(error), UsageError.exit_code)
    except StagelineError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        return 0  # the reader has seen enough
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"stageline: {' '.join(text.split())}\n")
    return code


def main() -> None:
    """Entry point of the console script."""
    prepare()
    sys.exit(run(sys.argv[1:]))
