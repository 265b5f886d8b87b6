"""The pages that are made from the code are fresh, and say all there is."""

from pathlib import Path

import pytest

from docs.builder.http_api import server
from docs.builder.pages import PAGES
from router.settings import RouterSettings
from stage_server.settings import StageSettings
from stageline.cli.main import app


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str, root: Path) -> None:
    """Otherwise: scripts/reference-pages."""
    assert (root / "docs" / name).read_text() == PAGES[name]()


def test_every_command_and_its_flags_are_there() -> None:
    text = PAGES["cli.md"]()
    commands = [name for name in app if not name.startswith("-")]
    assert len(commands) > 15
    assert [name for name in commands if f"\n## stageline {name}\n" not in text] == []
    for flag in ("--workload", "--scheduler", "--device-map", "--enable-expert-parallel", "--http-port"):
        assert f"`{flag}" in text or f", {flag}" in text, flag


def test_every_setting_is_there() -> None:
    text = PAGES["settings.md"]()
    names = {*RouterSettings.__struct_fields__, *StageSettings.__struct_fields__}
    assert [name for name in names if f"| `STAGELINE_{name.upper()}` | `{name}` |" not in text] == []


def test_every_route_says_what_it_gives() -> None:
    text = PAGES["http.md"]()
    routes = [r for r in server().routes if r.method != "HEAD"]
    assert len(routes) == 9
    assert [r for r in routes if r.resource and f"| `{r.method} {r.resource.canonical}` | " not in text] == []
    assert "|  |\n" not in text[text.index("## Routes") : text.index("## Bodies")].replace("| route | |\n", "")
