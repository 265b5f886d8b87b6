"""`scripts/accidents --count 100 --seed 0 [--from 0]`: one line per accident; exit code 1 if something was wrong."""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from tests.cluster.accidents.trial import trial


async def accidents(first: int, count: int, seed: int, session_retries: int) -> int:
    """How many left something wrong; leaks count as one."""
    failed = 0
    with TemporaryDirectory() as folder:
        async with trial(Path(folder), seed, session_retries) as cluster:
            for number in range(first, first + count):
                began_s = time.monotonic()
                try:
                    what, errors = await cluster.accident(number)
                except (AssertionError, TimeoutError, OSError, aiohttp.ClientError) as error:
                    what, errors = "(broke off)", [f"{type(error).__name__}: {error}"]
                failed += told(f"{number:4} {time.monotonic() - began_s:5.1f} s  {what}", errors)
            print(f"recordings: {dict(cluster.said)}")
    return failed + told(str(cluster.leaks), cluster.leaks.errors() + cluster.leaks.left())


def told(line: str, errors: list[str]) -> bool:
    """Print it with what was wrong; whether anything was."""
    print(line, *errors, sep="\n       WRONG: ", flush=True)
    return bool(errors)


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="scripts/accidents", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first accident")
    parser.add_argument("--session-retries", type=int, help="of the router; default: 3 for odd seeds, 0 for even ones")
    asked = parser.parse_args(arguments)
    retries = 3 * (asked.seed % 2) if asked.session_retries is None else asked.session_retries
    began_s = time.monotonic()
    failed = asyncio.run(accidents(asked.first, asked.count, asked.seed, retries))
    took_s = time.monotonic() - began_s
    which = f"seed {asked.seed}, --session-retries {retries}"
    print(f"{which}: {failed} of {asked.count} accidents, or their leaks, left something wrong ({took_s:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
