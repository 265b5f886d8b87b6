"""Tries the mutations of tests/mutations.toml, each in a copy of the tree: what can be broken unseen has no test."""

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
    """One rule, broken."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: list[str]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    mutation: list[Mutation]


def load() -> list[Mutation]:
    """All mutations."""
    return msgspec.toml.decode((ROOT / "tests" / "mutations.toml").read_bytes(), type=Table).mutation


def survives(mutation: Mutation) -> bool:
    """Whether the tests pass although the rule is broken."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        target = copy / mutation.file
        target.write_text(target.read_text().replace(mutation.old, mutation.new))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests]
        try:
            done = subprocess.run(command, cwd=copy, capture_output=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return False  # a run that no longer ends has been noticed
        if done.returncode not in {0, 1}:
            raise SystemExit(f"{mutation.name}: pytest could not run:\n{done.stdout.decode()[-2000:]}")
        return done.returncode == 0


def main(words: list[str]) -> int:
    """Try the mutations whose name holds one of `words`, or all."""
    survivors = 0
    for mutation in load():
        if words and not any(word in mutation.name for word in words):
            continue
        alive = survives(mutation)
        survivors += alive
        sys.stdout.write(f"{'SURVIVES' if alive else 'killed  '}  {mutation.rule:12}  {mutation.name}\n")
        sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
