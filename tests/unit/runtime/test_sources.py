"""A hash of the sources, which tells versions apart that have the same number."""

from pathlib import Path

import pytest

from stageline.runtime import sources


def test_it_changes_with_any_module_but_generated_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "stageline_of_a_test"
    (package / "v1").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sources, "PACKAGES", (package.name,))
    monkeypatch.setattr(sources, "GENERATED", Path(package.name, "v1"))
    found = []
    for name, text in (("__init__", ""), ("a", "1"), ("a", "2"), ("b", "2"), ("v1/c", "")):
        (package / f"{name}.py").write_text(text)
        found.append(sources.sources())
    assert len(set(found)) == 4
    assert found[3] == found[4]
