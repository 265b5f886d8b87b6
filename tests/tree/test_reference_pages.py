"""The pages that are made from the code are fresh, and say all there is."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from docs.builder.http_api import server
from docs.builder.pages import PAGES
from router.settings import RouterSettings
from stage_server.settings import StageSettings
from stageline.catalog.model_file import ModelFile
from stageline.cli.main import app
from stageline.hardware.device import Device
from stageline.model.attention import Attention
from stageline.model.ffn import Ffn
from stageline.model.formats import WEIGHT_FORMATS
from stageline.model.hf_methods import METHODS
from stageline.model.hf_parts import FAMILIES


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


def test_every_field_and_type_of_the_catalogue_is_there() -> None:
    text = PAGES["catalogue.md"]()
    kinds = [ModelFile, Device, *get_args(Attention), *get_args(Ffn)]
    fields = {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)}
    assert [name for name in fields if f"| `{name}` | " not in text] == []
    assert [name for name in (*FAMILIES, *METHODS, *WEIGHT_FORMATS) if f"`{name}`" not in text] == []
    assert "`meta-llama/Llama-3.1-8B`" in text and "| table by name" not in text


def test_every_setting_is_there() -> None:
    text = PAGES["settings.md"]()
    names = {*RouterSettings.__struct_fields__, *StageSettings.__struct_fields__}
    assert [name for name in names if f"| `STAGELINE_{name.upper()}` | `{name}` |" not in text] == []


def test_every_route_says_what_it_gives() -> None:
    text = PAGES["http.md"]()
    routes = [r for r in server().routes if r.method != "HEAD"]
    assert len(routes) == 12
    assert [r for r in routes if r.resource and f"| `{r.method} {r.resource.canonical}` | " not in text] == []
    assert "|  |\n" not in text[text.index("## Routes") : text.index("## Bodies")].replace("| route | |\n", "")
