"""Models by catalogue name or by the path of a Hugging Face config.json."""

from pathlib import Path

import msgspec

from stageline.catalog.loader import Catalog
from stageline.cli.output import read_file
from stageline.cost.measured_entries import Measured
from stageline.cost.profile import FORMAT, Profile
from stageline.errors import BadInput
from stageline.model.hf import import_config
from stageline.model.spec import ModelSpec
from stageline.plan.check_measured import check_measured

LARGEST_SCALE = 100.0


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


def read_profile(path: Path) -> Profile:
    """The profile in a file that `stageline calibrate` wrote. Raises BadInput."""
    try:
        profile = msgspec.json.decode(read_file(path), type=Profile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(path), None, f"not a profile: {error}", "make it with stageline calibrate") from None
    if profile.format != FORMAT:
        raise BadInput(f"{path}: $.format", profile.format, f"expected {FORMAT}", "make it with stageline calibrate")
    if not 0 < profile.attention_scale <= LARGEST_SCALE:
        raise BadInput(f"{path}: $.attention_scale", profile.attention_scale, f"lies between 0 and {LARGEST_SCALE:g}")
    for part in ("layer", "embedding", "head"):
        entry = Measured(tokens=getattr(profile, part), attention=profile.attention)
        check_measured(entry, f"{path}: $.{part}")
    return profile
