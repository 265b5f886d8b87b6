"""The reference engine takes values from the product, and no rule that it is there to check."""

import ast
from pathlib import Path

SHARED = {
    "stageline.cost.entries",
    "stageline.cost.service",
    "stageline.cost.totals",
    "stageline.engine.rng",
    "stageline.engine.settings",
    "stageline.engine.types",
    "stageline.plan.schema",
    "stageline.testing",
    "tests.reference",
}
PRODUCT = {"router", "stage_server", "stageline", "tests"}


def imported(path: Path) -> set[str]:
    """The modules that a file names in its imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    found = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return found | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def test_it_shares_only_values_and_cost_entries(root: Path) -> None:
    names = {name for path in (root / "tests/reference").glob("*.py") for name in imported(path)}
    of_the_product = {name for name in names if name.split(".")[0] in PRODUCT}
    own = {name for name in of_the_product if name.startswith("tests.reference.")}
    assert of_the_product - own == SHARED
