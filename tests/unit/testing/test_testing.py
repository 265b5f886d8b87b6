"""The public surface of the test kit, and the example of its docstring."""

import importlib.util
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from stageline import testing

PUBLIC = {
    "DigestObserver",
    "Ignoring",
    "ListWorkload",
    "Recorder",
    "Run",
    "Token",
    "UsersWorkload",
    "request",
    "run_fleet",
    "run_plan",
    "uniform_plan",
}


def test_the_public_surface() -> None:
    assert set(testing.__all__) == PUBLIC
    submodules = {path.stem for path in Path(testing.__path__[0]).glob("*.py")}
    assert {name for name in vars(testing) if not name.startswith("_")} - submodules == PUBLIC
    assert [name for name in PUBLIC if not getattr(testing, name).__doc__] == []


def test_the_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the module of a user, whose class is found by its name."""
    text = str(testing.__doc__)
    example = text[text.index("    from stageline") : text.index("\n\nRuns take place")]
    path = tmp_path / "example_of_the_kit.py"
    path.write_text(dedent(example))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    module.test_the_longest_prompt_goes_first()
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
