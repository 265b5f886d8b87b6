"""Models by catalogue name or by the path of a Hugging Face config.json."""

from pathlib import Path

from stageline.catalog.loader import Catalog
from stageline.cli.output import read_file
from stageline.model.hf import import_config
from stageline.model.spec import ModelSpec


def looks_like_path(text: str) -> bool:
    """Names have no slash and no .json."""
    return "/" in text or text.endswith(".json")


def find_model(text: str, catalog: Catalog) -> ModelSpec:
    """The model of a name, a config.json, or a directory with one in it. Raises BadInput or UsageError."""
    if not looks_like_path(text):
        return catalog.model(text).spec
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return import_config(read_file(path), str(path), name or "model")
