"""The house rules that a program can check: sizes, names, what the repository must not mention."""

import ast
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import stageline

PACKAGES = ("stageline", "stage_server", "router")
PURE = {"engine", "sync", "cost", "plan", "model", "hardware"}
MODULE_LINES, MEDIAN_MODULE_LINES = 400, 150
FUNCTION_LINES, USUAL_FUNCTION_LINES, USUAL_SHARE = 60, 30, 0.9

# A path of one machine, or the address of a package registry, helps nobody who reads the repository elsewhere.
FORBIDDEN_TEXT = re.compile(r"(?<![\w.])/(?:work|root|opt|Users|home)/|file://|\bpypi\.org\b|pythonhosted")
SECONDS_INSIDE = re.compile(r"_(?:ms|us|sec|secs|seconds|msec|usec)\b")


def modules(root: Path) -> list[Path]:
    """Every module that is written by hand."""
    found = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [path for path in found if path.parent != root / "stageline" / "v1"]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length in lines of every function of a module, decorators and docstring included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield f"{path.name}:{node.name}", (node.end_lineno or first) - first + 1


@pytest.fixture(scope="module")
def tracked(root: Path) -> list[Path]:
    """Every file of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [root / name for name in listed.split("\0") if name and (root / name).is_file()]


def test_modules_are_small(root: Path) -> None:
    lines = {str(path.relative_to(root)): len(path.read_text().splitlines()) for path in modules(root)}
    assert {name: n for name, n in lines.items() if n > MODULE_LINES} == {}
    assert statistics.median(n for n in lines.values() if n) <= MEDIAN_MODULE_LINES


def test_functions_are_small(root: Path) -> None:
    lines = [entry for path in modules(root) for entry in functions(path)]
    assert [entry for entry in lines if entry[1] > FUNCTION_LINES] == []
    usual = sum(n <= USUAL_FUNCTION_LINES for _, n in lines)
    long = sorted((entry for entry in lines if entry[1] > USUAL_FUNCTION_LINES), key=lambda entry: -entry[1])
    assert usual >= USUAL_SHARE * len(lines), long


def test_every_module_with_code_says_what_it_is(root: Path) -> None:
    silent = [path for path in modules(root) if path.read_text().strip() and not ast.get_docstring(parse(path))]
    assert silent == []


def parse(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


def test_pure_packages_count_in_nanoseconds(root: Path) -> None:
    pure = [path for path in modules(root) if path.parent.name in PURE]
    named = [
        f"{path.relative_to(root)}:{node.lineno} {name}"
        for path in pure
        for node in ast.walk(parse(path))
        for name in [getattr(node, "id", None) or getattr(node, "arg", None) or ""]
        if isinstance(name, str) and SECONDS_INSIDE.search(name)
    ]
    assert named == []


def test_no_file_names_a_machine_or_a_registry(root: Path, tracked: list[Path]) -> None:
    found = []
    for path in tracked:
        if path.suffix in {".png", ".ico", ".woff2", ".gz"} or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if FORBIDDEN_TEXT.search(line):
                found.append(f"{path.relative_to(root)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_scripts_can_be_run(root: Path) -> None:
    scripts = [*sorted((root / "scripts").iterdir()), root / ".ci/run"]
    files = [path for path in scripts if path.is_file()]
    assert [path.name for path in files if not path.stat().st_mode & 0o111] == []
    assert [path.name for path in files if not path.read_text().startswith("#!/usr/bin/env ")] == []


def test_the_public_surface_of_the_package() -> None:
    public = {name for name in vars(stageline) if not name.startswith("_")}
    submodules = {path.stem for path in Path(stageline.__path__[0]).iterdir()}
    assert public - submodules - {"TYPE_CHECKING"} == set()  # all else is loaded when asked for: tests/integration/api
    assert re.fullmatch(r"\d+\.\d+\.\d+", stageline.__version__)
