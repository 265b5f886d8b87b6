"""Every command that the documents show is one that `stageline` takes, flag by flag; short plans are made, too."""

import re
import shlex
from pathlib import Path

import pytest

from stageline.cli.main import app
from stageline.cli.main import invoke as run

ROOT = Path(__file__).resolve().parents[3]
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\[|\.\.\.|<|\|")  # DIR, HOST:PORT, [OPTIONS]: for people


def commands(document: Path) -> list[str]:
    """Lines of code blocks that begin with `stageline`, continued lines joined, comments left out."""
    text = re.sub(r"\s*\\\n\s*", " ", document.read_text())
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [re.split(r"\s{2,}|·", line)[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("stageline ") and not PLACEHOLDER.search(line)]


SHOWN = sorted(
    {(path.name, line) for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] for line in commands(path)}
)


def test_there_are_some() -> None:
    assert len([name for name, _ in SHOWN if name == "practice.md"]) >= 19


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_it_is_understood(document: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("line", [line for name, line in SHOWN if name == "practice.md" and " plan " in line])
def test_plans_of_the_examples_are_made(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(line)[1:]) == 0
