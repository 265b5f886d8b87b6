"""`python -m stage_server`: one stage of a pipeline."""

import os
import sys

from stage_server.settings import StageSettings
from stageline.errors import StagelineError
from stageline.runtime.settings import load
from stageline.wire.environment import prepare

PROGRAM = "stage_server"


def start() -> int:
    """Returns the exit code."""
    prepare()
    from stage_server.server import main  # noqa: PLC0415  (imports grpc, which reads the environment)
    from stageline.runtime.server import run  # noqa: PLC0415

    try:
        settings = load(StageSettings, sys.argv[1:], os.environ, PROGRAM)
    except StagelineError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return error.exit_code
    return run(PROGRAM, lambda: main(settings), settings)


if __name__ == "__main__":
    sys.exit(start())
