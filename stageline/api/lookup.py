"""Models by catalogue name, Hugging Face id or the path of a config.json; profiles by name or path."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stageline.api.files import read_file
from stageline.catalog.decode import did_you_mean
from stageline.catalog.loader import Catalog
from stageline.catalog.model_file import ModelEntry
from stageline.cost.efficiencies import EFFICIENCIES_FORMAT, Efficiencies
from stageline.cost.kernel_profile import KERNELS_FORMAT, KernelProfile
from stageline.cost.measured_entries import MeasuredCost
from stageline.cost.profile import PROFILE_FORMAT, Profile
from stageline.errors import BadInput
from stageline.model.hf import BESIDE, import_config
from stageline.model.spec import ModelSpec
from stageline.plan.check_measured import MAX_POINT_NS, check_curve, check_measured, check_surface
from stageline.runtime.plans import is_fleet_file
from stageline.units import NS_PER_S

AnyProfile = Profile | KernelProfile | Efficiencies
MAX_SCALE = 100.0
HF_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*[A-Za-z0-9]")


def looks_like_path(text: str) -> bool:
    """Whether a text is a path: it has a slash or ends in .json."""
    return "/" in text or text.endswith(".json")


def find_entry(text: str, catalog: Catalog) -> ModelEntry | None:
    """The catalogue's entry of a name or a Hugging Face id; None for what is a path. Raises BadInput."""
    if Path(text).suffix in (".toml", ".json") and is_fleet_file(Path(text)):
        reason = "a fleet file stands for no model"
        raise BadInput("model", text, reason, "stageline fleet plans it, and stageline run runs it; give a model here")
    if not looks_like_path(text):
        return catalog.model(text)
    if not HF_ID.fullmatch(text) or text.endswith(".json") or Path(text).exists():
        return None
    entry = catalog.model_of_id(text)
    if entry is None:
        names = catalog.models()
        meant = did_you_mean(text, catalog.hf_ids()) or did_you_mean(text.split("/")[1], names)
        way_out = f"{meant}give the path of its config.json, or a model of the catalogue: {', '.join(names)}"
        raise BadInput("model", text, "neither a path nor the Hugging Face id of a model in the catalogue", way_out)
    return entry


def find_model(text: str, catalog: Catalog) -> ModelSpec:
    """The model of a name, a Hugging Face id, a config.json, or a directory with one in it.

    A file beside config.json that says how weights are stored (`BESIDE`) counts too. Raises BadInput or UsageError.
    """
    entry = find_entry(text, catalog)
    if entry:
        return entry.spec
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    beside = (path.with_name(found) for found in BESIDE if path.name == "config.json")
    found = next((other for other in beside if other.is_file()), None)
    if found is None:
        return import_config(read_file(path), str(path), name or "model")
    return import_config(read_file(path), str(path), name or "model", read_file(found), found.name)


def find_profile(text: str, catalog_dirs: Sequence[Path]) -> AnyProfile:
    """The profile in a file, or in `profiles/NAME.json` of a --catalog directory. Raises BadInput."""
    if looks_like_path(text):
        return read_profile(Path(text))
    found = {path.stem: path for directory in catalog_dirs for path in sorted((directory / "profiles").glob("*.json"))}
    if text not in found:
        known = f"known: {', '.join(sorted(found))}" if found else "give --catalog DIR with profiles/ in it, or a file"
        raise BadInput("--profile", text, "no profile of this name", known)
    return read_profile(found[text])


def read_profile(path: Path) -> AnyProfile:
    """The profile in a file that `stageline calibrate` wrote. Raises BadInput."""
    data = read_file(path)
    try:
        which = msgspec.json.decode(data, type=_Named).format
        if which == EFFICIENCIES_FORMAT:
            return _checked_fit(msgspec.json.decode(data, type=Efficiencies), path)
        if which == KERNELS_FORMAT:
            return _checked_kernels(msgspec.json.decode(data, type=KernelProfile), path)
        profile = msgspec.json.decode(data, type=Profile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(path), None, f"not a profile: {error}", "make it with stageline calibrate") from None
    if profile.format != PROFILE_FORMAT:
        expected = f"expected {PROFILE_FORMAT}, {KERNELS_FORMAT} or {EFFICIENCIES_FORMAT}"
        raise BadInput(f"{path}: $.format", profile.format, expected, "make it with stageline calibrate")
    if not 0 < profile.attention_scale <= MAX_SCALE:
        raise BadInput(f"{path}: $.attention_scale", profile.attention_scale, f"must lie between 0 and {MAX_SCALE:g}")
    for part in ("layer", "embedding", "head"):
        entry = MeasuredCost(tokens=getattr(profile, part), attention=profile.attention)
        check_measured(entry, f"{path}: $.{part}")
    return profile


class _Named(msgspec.Struct):
    """The field that tells the two kinds of profile apart."""

    format: str = PROFILE_FORMAT


def _checked_kernels(found: KernelProfile, path: Path) -> KernelProfile:
    check_curve(found.head, f"{path}: $.head")
    for i, kind in enumerate(found.kinds):
        at = f"{path}: $.kinds[{i}]"
        for name in ("work", "collectives"):
            for j, curve in enumerate(getattr(kind, name)):
                check_curve(curve, f"{at}.{name}[{j}]")
        if kind.experts:
            check_curve(kind.experts, f"{at}.experts")
        for name in ("decode", "prefill", "linear_decode", "linear_prefill"):
            if surface := getattr(kind, name):
                check_surface(surface, f"{at}.{name}")
        for name in ("overhead_ns", "token_ns"):
            if not 0 <= getattr(kind, name) <= MAX_POINT_NS:
                raise BadInput(f"{at}.{name}", getattr(kind, name), f"must lie between 0 and {MAX_POINT_NS:g}")
    return found


def _checked_fit(found: Efficiencies, path: Path) -> Efficiencies:
    for name in ("flops_share", "bandwidth_share"):
        if not 0 < getattr(found, name) <= 1:
            raise BadInput(f"{path}: $.{name}", getattr(found, name), "must be above 0 and at most 1")
    if not 0 <= found.step_ns <= NS_PER_S:
        raise BadInput(f"{path}: $.step_ns", found.step_ns, f"must lie between 0 and {NS_PER_S:,}")
    return found
