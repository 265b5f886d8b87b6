"""Writes the reference pages."""

from docs.builder.pages import PAGES, ROOT

for name, page in PAGES.items():
    (ROOT / "docs" / name).write_text(page())
