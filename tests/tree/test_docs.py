"""The documents name what exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [str(path.relative_to(ROOT)) for folder in (ROOT, ROOT / "docs") for path in sorted(folder.glob("*.md"))]
IN_REPOSITORY = re.compile(r"`((?:stageline|stage_server|router|tests|scripts|deploy|proto|docs|examples)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
LAW = re.compile(r"^\| L(\d) ", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_in_a_document_exists(root: Path, document: str) -> None:
    text = (root / document).read_text()
    named = [path.removesuffix("NAME.toml") for path in IN_REPOSITORY.findall(text) + LINK.findall(text)]
    base = (root / document).parent
    missing = [path for path in named if not (root / path).exists() and not (base / path).exists()]
    generated = {"stageline/v1"}
    assert set(missing) - generated == set()


@pytest.mark.parametrize(
    "kind",
    [
        "model",
        "device",
        "link",
        "batching policy",
        "queueing policy",
        "routing policy",
        "metric",
        "workload format",
        "fault",
        "command",
    ],
)
def test_there_is_a_recipe(root: Path, kind: str) -> None:
    assert re.search(rf"^### A {kind}$", (root / "CONTRIBUTING.md").read_text(), re.MULTILINE)


def test_every_law_is_listed_once(root: Path) -> None:
    assert LAW.findall((root / "docs/invariants.md").read_text()) == [str(n) for n in range(1, 10)]


def test_the_package_list_of_the_architecture_is_the_tree(root: Path) -> None:
    text = (root / "ARCHITECTURE.md").read_text()
    packages = {path.parent.name for path in (root / "stageline").glob("*/__init__.py")} - {"v1"}
    block = text[text.index("## The packages") : text.index("## One microbatch")]
    assert {name for name in packages if not re.search(rf"\b{name}\b", block)} == set()
