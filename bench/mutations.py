"""Mutation testing: breaks each rule in tests/mutations.toml in a copy of the tree and runs the tests named there.

Prints a line per mutation. One that survives breaks a rule that no test checks.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("stageline", "stage_server", "router", "tests", "pyproject.toml")
LIMIT_S = 600


class Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One broken rule: `old` in `file` becomes `new`, and one of `tests` must fail."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: list[str]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """tests/mutations.toml."""

    mutation: list[Mutation]


def read_mutations() -> list[Mutation]:
    """All mutations."""
    return msgspec.toml.decode((ROOT / "tests" / "mutations.toml").read_bytes(), type=Table).mutation


def survives(mutation: Mutation) -> bool:
    """Whether the tests still pass with the rule broken."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            original = ROOT / name
            if original.is_dir():
                shutil.copytree(original, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(original, copy / name)
        target = copy / mutation.file
        target.write_text(target.read_text().replace(mutation.old, mutation.new))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests]
        try:
            done = subprocess.run(command, cwd=copy, capture_output=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return False  # a mutation that hangs the tests is noticed too
        if done.returncode not in {0, 1}:
            raise SystemExit(f"{mutation.name}: pytest could not run:\n{done.stdout.decode()[-2000:]}")
        return done.returncode == 0


def main(words: list[str]) -> int:
    """Try the mutations whose names contain one of `words`, or all; returns 1 if one survives."""
    survivors = 0
    for mutation in read_mutations():
        if words and not any(word in mutation.name for word in words):
            continue
        alive = survives(mutation)
        survivors += alive
        sys.stdout.write(f"{'SURVIVES' if alive else 'killed  '}  {mutation.rule:12}  {mutation.name}\n")
        sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
