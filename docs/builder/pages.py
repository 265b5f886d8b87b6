"""Which pages there are."""

from collections.abc import Callable
from pathlib import Path

from docs.builder import catalogue, commands, http_api, settings

ROOT = Path(__file__).resolve().parents[2]
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": commands.page,
    "settings.md": settings.page,
    "http.md": http_api.page,
    "catalogue.md": catalogue.page,
}
