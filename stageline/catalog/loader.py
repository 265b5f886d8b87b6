"""The catalogue: the TOML files that ship with the package, and the user's, which replace those of the same name.

A directory holds models/*.toml, devices/*.toml, costs/*.toml, links/*.toml and engines/*.toml; the file's stem is the
entry's name. The file in costs/ that has a device's name, or that its `costs_of` names, holds its kernels' constants.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stageline.catalog.decode import did_you_mean, parse_toml
from stageline.catalog.device_file import CostsEntry, DeviceEntry, LinkEntry, costs_entry, device_entry, link_entry
from stageline.catalog.engine_file import EngineEntry, engine_entry
from stageline.catalog.model_file import ModelEntry, model_entry
from stageline.errors import BadInput
from stageline.hardware.device import Device

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
        self._costs = _index(roots, "costs")
        self._links = _index(roots, "links")
        self._engines = _index(roots, "engines")

    def models(self) -> list[str]:
        """Names of all models."""
        return sorted(self._models)

    def devices(self) -> list[str]:
        """Names of all devices."""
        return sorted(self._devices)

    def links(self) -> list[str]:
        """Names of all links."""
        return sorted(self._links)

    def engines(self) -> list[str]:
        """Names of all serving engines."""
        return sorted(self._engines)

    def model(self, name: str) -> ModelEntry:
        """A model by name. Raises BadInput if there is none, or for an error in its file."""
        return _entry(self._models, name, "model", model_entry)

    def model_of_id(self, hf_id: str) -> ModelEntry | None:
        """The model that has this Hugging Face id, in any case; None without one."""
        entries = (self.model(name) for name in self.models())
        return next((e for e in entries if hf_id.lower() in map(str.lower, e.hf_ids)), None)

    def hf_ids(self) -> list[str]:
        """The Hugging Face ids of all models."""
        return sorted(hf_id for name in self.models() for hf_id in self.model(name).hf_ids)

    def device(self, name: str) -> DeviceEntry:
        """A device by name, with its kernel constants. Raises BadInput if there is none, or for a wrong file."""
        entry = _entry(self._devices, name, "device", device_entry)
        costs = self.costs(entry.device)
        if costs is None:
            return entry
        return DeviceEntry(device=msgspec.structs.replace(entry.device, costs=costs.costs), sources=entry.sources)

    def costs(self, device: Device) -> CostsEntry | None:
        """Kernel constants of a device, its own or of its architecture; None if there are none. Raises BadInput."""
        name = device.costs_of or (device.name if device.name in self._costs else "")
        return _entry(self._costs, name, "cost", costs_entry) if name else None

    def link(self, name: str) -> LinkEntry:
        """A link by name. Raises BadInput if there is none, or for an error in its file."""
        return _entry(self._links, name, "link", link_entry)

    def engine(self, name: str) -> EngineEntry:
        """A serving engine by name. Raises BadInput if there is none, or for an error in its file."""
        return _entry(self._engines, name, "engine", engine_entry)

    def engine_for(self, kind: str) -> EngineEntry:
        """The default serving engine of a device class: the first whose file names it. Raises BadInput."""
        for name in self.engines():
            entry = self.engine(name)
            if kind in entry.engine.default_for:
                return entry
        way_out = "name one with --serving-engine, or add the class to its default_for"
        raise BadInput("engines", kind, "no serving engine is the default of this device class", way_out)


def _index(roots: list[Traversable], folder: str) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for root in roots:
        directory = root / folder
        if directory.is_dir():
            found |= {f.name.removesuffix(".toml"): f for f in directory.iterdir() if f.name.endswith(".toml")}
    return found


def _entry(index: dict[str, Traversable], name: str, what: str, build: Callable[[dict[str, Any], str], T]) -> T:
    if name not in index:
        way_out = f"{did_you_mean(name, index)}known: {', '.join(sorted(index))}"
        raise BadInput(what, name, f"no {what} of this name", way_out)
    place = f"{what}s/{name}.toml"
    try:
        data = index[name].read_bytes()
    except OSError as error:
        raise BadInput(place, None, f"can't be read: {error.strerror}") from None
    entry: T = _built(data, place, name, build)
    return entry


@lru_cache(maxsize=512)
def _built(data: bytes, place: str, name: str, build: Callable[[dict[str, Any], str], T]) -> T:
    """The entry in a file's bytes: a search asks for the same ones hundreds of times."""
    document = parse_toml(data, place)
    if document.get("name") != name:
        hint = f'write name = "{name}"'
        raise BadInput(f"{place}: $.name", document.get("name"), "must be the file's name", hint)
    return build(document, place)
