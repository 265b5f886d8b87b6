"""The catalogue: the TOML files that ship with the package, and the user's, which replace those of the same name.

A directory holds models/*.toml, devices/*.toml and links/*.toml; the file's stem is the entry's name.
"""

from collections.abc import Callable, Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from stageline.catalog.decode import parse_toml
from stageline.catalog.device_file import DeviceEntry, LinkEntry, device_entry, link_entry
from stageline.catalog.model_file import ModelEntry, model_entry
from stageline.errors import BadInput

T = TypeVar("T")


class Catalog:
    """Finds entries by name, and reads a file only when its entry is requested."""

    def __init__(self, extra: Iterable[Path] = ()) -> None:
        """`extra`: directories with the user's entries; the last one wins. Raises BadInput for a missing one."""
        roots: list[Traversable] = [files("stageline.catalog"), *extra]
        for root in roots[1:]:
            if not root.is_dir():
                raise BadInput(str(root), None, "no such directory", "give a directory with models/ or devices/ in it")
        self._models = _index(roots, "models")
        self._devices = _index(roots, "devices")
        self._links = _index(roots, "links")

    def models(self) -> list[str]:
        """Names of all models."""
        return sorted(self._models)

    def devices(self) -> list[str]:
        """Names of all devices."""
        return sorted(self._devices)

    def links(self) -> list[str]:
        """Names of all links."""
        return sorted(self._links)

    def model(self, name: str) -> ModelEntry:
        """A model by name. Raises BadInput if there is none, or for an error in its file."""
        return _entry(self._models, name, "model", model_entry)

    def device(self, name: str) -> DeviceEntry:
        """A device by name. Raises BadInput if there is none, or for an error in its file."""
        return _entry(self._devices, name, "device", device_entry)

    def link(self, name: str) -> LinkEntry:
        """A link by name. Raises BadInput if there is none, or for an error in its file."""
        return _entry(self._links, name, "link", link_entry)


def _index(roots: list[Traversable], folder: str) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for root in roots:
        directory = root / folder
        if directory.is_dir():
            found |= {f.name.removesuffix(".toml"): f for f in directory.iterdir() if f.name.endswith(".toml")}
    return found


def _entry(index: dict[str, Traversable], name: str, what: str, build: Callable[[dict[str, Any], str], T]) -> T:
    if name not in index:
        raise BadInput(what, name, f"no {what} of this name", f"known: {', '.join(sorted(index))}")
    place = f"{what}s/{name}.toml"
    try:
        data = index[name].read_bytes()
    except OSError as error:
        raise BadInput(place, None, f"can't be read: {error.strerror}") from None
    document = parse_toml(data, place)
    if document.get("name") != name:
        hint = f'write name = "{name}"'
        raise BadInput(f"{place}: $.name", document.get("name"), "must be the file's name", hint)
    return build(document, place)
