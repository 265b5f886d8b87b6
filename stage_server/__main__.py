"""`python -m stage_server`: one stage of a pipeline."""

import os
import sys

from stage_server.server import main
from stage_server.settings import StageSettings
from stageline.errors import StagelineError
from stageline.runtime.server import complain, run
from stageline.runtime.settings import load

PROGRAM = "stage_server"


def start() -> int:
    """Returns the exit code."""
    try:
        settings = load(StageSettings, sys.argv[1:], os.environ, PROGRAM)
    except StagelineError as error:
        complain(PROGRAM, error)
        return error.exit_code
    return run(PROGRAM, lambda: main(settings), settings)


if __name__ == "__main__":
    sys.exit(start())
