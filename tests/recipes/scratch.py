"""A copy of the tree in which a test follows a recipe of CONTRIBUTING.md, and what that recipe says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = ("deploy/grafana", "deploy/prometheus", "docs", "router", "scripts", "stage_server", "stageline", "tests")
FILES = ("CONTRIBUTING.md", "README.md", "docker-compose.yml", "pyproject.toml")
NAMED = re.compile(r"`([\w./-]+/[\w./-]+)`")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "images", "*.png", "*.gz", ".*")


class Scratch:
    """Its `root` is as the checkout, with the checkout's environment; `scripts/install` does nothing there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in TREES:
            shutil.copytree(ROOT / name, root / name, ignore=LEFT_OUT)
        for name in FILES:
            shutil.copy(ROOT / name, root / name)
        (root / ".venv").symlink_to(sys.prefix)
        (root / "scripts/install").write_text("#!/bin/sh\n")

    def add(self, name: str, text: str) -> None:
        """A new file."""
        assert not (self.root / name).exists(), f"{name} is there already"
        (self.root / name).write_text(text)

    def insert(self, name: str, before: str, text: str) -> None:
        """`text` before a place that the file has exactly once."""
        old = (self.root / name).read_text()
        assert old.count(before) == 1, f"{name}: {before!r} occurs {old.count(before)} times"
        (self.root / name).write_text(old.replace(before, text + before))

    def changed(self) -> set[str]:
        """The files that differ from the checkout's."""
        files = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        names = {str(path.relative_to(self.root)) for path in files if "__pycache__" not in path.parts}
        names = {name for name in names if not name.startswith(".") and name != "scripts/install"}
        return {
            name
            for name in names
            if not (ROOT / name).exists() or (ROOT / name).read_bytes() != (self.root / name).read_bytes()
        }

    def run(self, *words: str) -> str:
        """The output of a script, or of python, in the copy; fails with it unless the exit code is 0."""
        environment = os.environ | {"PYTHONPATH": str(self.root)}
        done = subprocess.run(words, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def stageline(self, *words: str) -> str:
        """The output of a command."""
        return self.run(sys.executable, "-c", "from stageline.cli.main import main; main()", *words)

    def check(self, *tests: str) -> None:
        """Style of what was added, and the tests that the recipe names."""
        python = sorted(name for name in self.changed() if name.endswith(".py"))
        if python:
            self.run(sys.executable, "-m", "ruff", "check", "--no-cache", *python)
        self.pytest(*tests)

    def pytest(self, *arguments: str) -> str:
        """What pytest prints in the copy."""
        return self.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


def recipe(title: str) -> str:
    """The text of a recipe."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"no recipe '{title}'"
    return found[1]


def named(title: str, **names: str) -> set[str]:
    """The files that a recipe names, NAME and its like filled in."""
    text = recipe(title)
    for placeholder, name in names.items():
        text = re.sub(rf"(?<![A-Z]){placeholder}(?![A-Z])", name, text)
    return set(NAMED.findall(text))
