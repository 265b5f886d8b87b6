"""`python -m router`: the router of a pipeline."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any

from router.settings import RouterSettings
from stageline.runtime.program import start


def _main() -> Callable[[RouterSettings], Coroutine[Any, Any, None]]:
    from router.server import main  # noqa: PLC0415  (imports grpc)

    return main


if __name__ == "__main__":
    sys.exit(start("router", RouterSettings, _main))
