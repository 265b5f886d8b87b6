"""How a server program starts: its environment, its settings, and only then gRPC, which reads the environment."""

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stageline.errors import StagelineError
from stageline.runtime.settings import ServerSettings, read_settings
from stageline.wire.environment import prepare

S = TypeVar("S", bound=ServerSettings)


def start(program: str, kind: type[S], imported: Callable[[], Callable[[S], Coroutine[Any, Any, None]]]) -> int:
    """Runs the coroutine that `imported` gives, with the settings; returns the exit code."""
    prepare()
    try:
        settings = read_settings(kind, sys.argv[1:], os.environ, program)
    except StagelineError as error:
        sys.stderr.write(f"{program}: {error}\n")
        return error.exit_code
    from stageline.runtime.server import run  # noqa: PLC0415  (imports grpc)

    main = imported()
    return run(program, lambda: main(settings), settings)
