"""The examples of the docstrings, and the snippets of docs/python.md, run as they stand."""

import doctest
import re
from pathlib import Path

import pytest

import stageline
from stageline.api import planning, results, running, searching

SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("module", [planning, results, running, searching], ids=lambda module: module.__name__)
def test_examples(module: object, small: stageline.ModelPlan, tmp_path: Path) -> None:
    stageline.run(small, "constant:rate=10,requests=5,input=64,output=4", output=tmp_path)
    tests = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"DIRECTORY": tmp_path})
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


def test_the_page_for_programs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Top to bottom in one session, as a reader would; the lines that begin with `assert` state what they show."""
    monkeypatch.chdir(tmp_path)
    snippets = SNIPPET.findall((root / "docs/python.md").read_text())
    assert len(snippets) >= 5
    session: dict[str, object] = {}
    for number, snippet in enumerate(snippets, 1):
        exec(compile(snippet, f"docs/python.md, snippet {number}", "exec"), session)
    used = set(re.findall(r"stageline\.(\w+)\(", "\n".join(snippets)))
    assert {"plan_model", "run", "read_run", "compare", "search"} <= used
