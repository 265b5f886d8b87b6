"""The documents name what exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [str(path.relative_to(ROOT)) for folder in (ROOT, ROOT / "docs") for path in sorted(folder.glob("*.md"))]
IN_REPOSITORY = re.compile(
    r"`((?:stageline|stage_server|router|tests|bench|scripts|deploy|proto|docs|examples)/[\w./-]+)`"
)
PLACEHOLDER = re.compile(r"[^/]*(?:NAME|BOARD)[^/]*$")  # a file that a recipe of CONTRIBUTING.md adds
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LAW = re.compile(r"^\| L(\d) ", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_in_a_document_exists(root: Path, document: str) -> None:
    text = (root / document).read_text()
    named = [PLACEHOLDER.sub("", path) for path in IN_REPOSITORY.findall(text) + LINK.findall(text)]
    base = (root / document).parent
    missing = [path for path in named if not (root / path).exists() and not (base / path).exists()]
    generated = {"stageline/v1"}
    assert set(missing) - generated == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_heading_that_a_link_names_exists(root: Path, document: str) -> None:
    base = (root / document).parent
    links = ANCHOR.findall((root / document).read_text())
    wanted = [(path or (root / document).name, anchor) for path, anchor in links]
    assert [(path, anchor) for path, anchor in wanted if anchor not in anchors(base / path)] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(page.read_text())
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "kind",
    [
        "model",
        "device",
        "link",
        "batching policy",
        "queueing policy",
        "routing policy",
        "KV policy",
        "metric",
        "workload format",
        "fault",
        "command",
    ],
)
def test_there_is_a_recipe(root: Path, kind: str) -> None:
    assert re.search(rf"^### A {kind}$", (root / "CONTRIBUTING.md").read_text(), re.MULTILINE)


def test_every_test_that_the_recipes_name_exists(root: Path) -> None:
    names = set(re.findall(r"`(test_\w+)`", (root / "CONTRIBUTING.md").read_text()))
    code = "".join(path.read_text() for path in (root / "tests").rglob("*.py") if "recipes" not in path.parts)
    assert names
    assert [name for name in names if f"def {name}(" not in code] == []


def test_every_law_is_listed_once(root: Path) -> None:
    assert LAW.findall((root / "docs/invariants.md").read_text()) == [str(n) for n in range(1, 10)]


def test_the_package_list_of_the_architecture_is_the_tree(root: Path) -> None:
    text = (root / "ARCHITECTURE.md").read_text()
    packages = {path.parent.name for path in (root / "stageline").glob("*/__init__.py")} - {"v1"}
    block = text[text.index("## The packages") : text.index("## One microbatch")]
    assert {name for name in packages if not re.search(rf"\b{name}\b", block)} == set()


def test_the_messages_that_the_security_page_explains_are_those_of_the_code(root: Path) -> None:
    table = (root / "docs/security.md").read_text().partition("## What fails")[2]
    shown = [message.removesuffix(" (...)") for message in re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)]
    code = "".join(path.read_text() for name in ("stageline/wire", "router") for path in (root / name).rglob("*.py"))
    assert len(shown) == 5
    assert [message for message in shown if message not in code] == []
