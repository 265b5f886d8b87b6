"""`python -m stage_server`: one stage of a pipeline."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any

from stage_server.settings import StageSettings
from stageline.runtime.program import start


def _main() -> Callable[[StageSettings], Coroutine[Any, Any, None]]:
    from stage_server.server import main  # noqa: PLC0415  (imports grpc)

    return main


if __name__ == "__main__":
    sys.exit(start("stage_server", StageSettings, _main))
