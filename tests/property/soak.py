"""Large counts of random scenarios: `scripts/soak`, or `python -m tests.property.soak`."""

import argparse
import sys
import time

from tests.property.checks import CHECKS, command, run_case


def main(arguments: list[str]) -> int:
    """Prints one line, and how to replay the first failure; the exit code is then 1."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description="Run random scenarios through a check.")
    parser.add_argument("--count", type=int, default=1000, help="scenarios of each kind (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first scenario (default 0)")
    kinds = sorted({kind for check in CHECKS.values() for kind in check.kinds})
    parser.add_argument("--kind", choices=kinds, action="append", help="may be repeated (default: all)")
    parser.add_argument("--check", choices=sorted(CHECKS), default="reference", help="(default reference)")
    asked = parser.parse_args(arguments)
    allowed = CHECKS[asked.check].kinds
    if asked.kind and not set(asked.kind) <= set(allowed):
        parser.error(f"--check {asked.check} takes the kinds {', '.join(allowed)}")
    return soak(asked.check, asked.kind or list(allowed), asked.seed, asked.count)


def soak(check: str, kinds: list[str], seed: int, count: int) -> int:
    """All scenarios, whether some fail or not."""
    started_s, failed = time.monotonic(), []
    for kind in kinds:
        for number in range(seed, seed + count):
            try:
                run_case(check, kind, number)
            except Exception as error:
                failed.append((kind, number, error))
    ran = len(kinds) * count
    spent = f"{time.monotonic() - started_s:.0f} s"
    print(f"{check}: {ran - len(failed):,} of {ran:,} scenarios hold ({', '.join(kinds)}; from number {seed}; {spent})")
    if failed:
        kind, number, error = failed[0]
        print(f"first failure: {type(error).__name__}: {error}\nreplay: {command(check, kind, number)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
