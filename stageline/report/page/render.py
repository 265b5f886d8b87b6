"""Puts a page together: skeleton, style, script and data in one file."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import msgspec

from stageline.report import palette
from stageline.report.page.data import page_data

SCRIPTS = ("decode.js", "format.js", "view.js", "timeline.js", "strips.js", "stages.js", "page.js")


def write_page(directory: Path, path: Path) -> None:
    """One self-contained HTML file; the same run gives the same bytes. BadInput when the run is damaged; OSError."""
    data, blob = page_data(directory)
    text = fill_template(
        asset("page.html"),
        {
            "TITLE": escape(f"{data.summary.topology.model} on {data.summary.topology.device}"),
            "STYLE": css_colours() + asset("page.css"),
            "DATA": safe_json(data),
            "BLOB": blob,
            "SCRIPT": "\n".join(asset(name) for name in SCRIPTS),
        },
    )
    path.write_text(text, encoding="utf-8")


def asset(name: str) -> str:
    """A file beside this module."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def fill_template(skeleton: str, values: Mapping[str, str]) -> str:
    """Replaces each %%NAME%% of the skeleton; the texts put in are not searched for names."""
    first, *rest = skeleton.split("%%")
    parts = [first]
    for name, text in zip(rest[::2], rest[1::2], strict=True):
        parts += (values[name], text)
    return "".join(parts)


def escape(text: str) -> str:
    """Text between HTML tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def safe_json(value: object) -> str:
    """JSON that cannot close the script element that holds it."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def css_colours() -> str:
    """The palette as CSS variables, for light and dark."""
    light = _variables(palette.BUSY, palette.SERVICES, palette.CAUSE_COLOURS)
    dark = _variables(palette.DARK_BUSY, palette.DARK_SERVICES, palette.DARK_CAUSE_COLOURS)
    return f":root{{{light}}}\n:root[data-theme=dark]{{{dark}}}\n"


def _variables(busy: str, services: tuple[str, ...], causes: Mapping[str, str]) -> str:
    pairs = {"busy": busy, **{f"service-{i}": colour for i, colour in enumerate(services)}, **causes}
    return "".join(f"--{name}:{colour};" for name, colour in pairs.items())
