"""The table of mutations stays applicable as the code moves."""

from pathlib import Path

from bench.mutations import read_mutations


def test_every_mutation_still_applies(root: Path) -> None:
    times = {m.name: (root / m.file).read_text().count(m.old) for m in read_mutations()}
    assert {name: n for name, n in times.items() if n != 1} == {}


def test_every_mutation_names_tests_that_exist(root: Path) -> None:
    missing = [t for m in read_mutations() for t in m.tests if not (root / t.partition("::")[0]).exists()]
    assert missing == []
    assert all(m.old != m.new for m in read_mutations())


def test_the_page_lists_every_mutation(root: Path) -> None:
    page = (root / "docs" / "invariants.md").read_text()
    assert [m.name for m in read_mutations() if f"| {m.rule} | {m.name} |" not in page] == []
