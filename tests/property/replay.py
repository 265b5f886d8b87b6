"""Runs one case again and prints the first difference.

    .venv/bin/python -m tests.property.replay CHECK KIND NUMBER

as a failing test prints it. The exit code is 1 when it fails again, 0 when it holds, 2 when there is no such case.
"""

import sys

from tests.property.checks import CHECKS, run_case


def main(arguments: list[str]) -> int:
    """The command."""
    try:
        check, kind, text = arguments
        number = int(text)
        known = kind in CHECKS[check].kinds
    except (ValueError, KeyError):
        known = False
    if not known:
        print(f"{__doc__}\n" + "\n".join(f"  {name}: {', '.join(check.kinds)}" for name, check in CHECKS.items()))
        return 2
    try:
        run_case(check, kind, number)
    except Exception as error:
        print(f"{check} {kind} {number} fails: {type(error).__name__}: {error}")
        return 1
    print(f"{check} {kind} {number} holds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
