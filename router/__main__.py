"""`python -m router`: the router of a pipeline."""

import os
import sys

from router.server import main
from router.settings import RouterSettings
from stageline.errors import StagelineError
from stageline.runtime.server import complain, run
from stageline.runtime.settings import load

PROGRAM = "router"


def start() -> int:
    """Returns the exit code."""
    try:
        settings = load(RouterSettings, sys.argv[1:], os.environ, PROGRAM)
    except StagelineError as error:
        complain(PROGRAM, error)
        return error.exit_code
    return run(PROGRAM, lambda: main(settings), settings)


if __name__ == "__main__":
    sys.exit(start())
