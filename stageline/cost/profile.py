"""What one kind of layer takes on one machine, measured; plans name a profile and fold it into `Measured` entries."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost
from stageline.errors import UsageError
from stageline.model.spec import ModelSpec

PROFILE_FORMAT = "stageline-profile/1"


class Residual(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a profile is from measured points: relative errors, profile / measured - 1."""

    of: str
    points: int
    median: float
    p90_absolute: float
    mean: float | None = None  # of the means: mean of the profile / mean of what was measured - 1


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One layer and the ends of a model on one tensor group."""

    name: str
    model: str
    device: str
    layer: Curve  # by new tokens
    attention: AttentionGrid  # of one layer
    embedding: Curve  # by new tokens
    head: Curve  # final norm, head and sampler, by sampled rows
    tensor_parallel: int = 1
    attention_scale: float = 1.0  # the fitted scalar: unequal contexts in a batch cost more than their mean
    residuals: tuple[Residual, ...] = ()
    source: str = ""
    format: str = PROFILE_FORMAT


def scaled(curve: Curve, factor: float) -> Curve:
    """Every value times a factor."""
    return Curve(at=curve.at, ns=tuple(ns * factor for ns in curve.ns))


class MeasuredOn(Protocol):
    """What was measured somewhere."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def tensor_parallel(self) -> int: ...


def check_measured_on(profile: MeasuredOn, spec: ModelSpec, device: str, ranks: int) -> None:
    """A profile serves the model, device and tensor group that it was taken on. Raises UsageError."""
    for what, taken, asked in (
        ("model", profile.model, spec.name),
        ("device", profile.device, device),
        ("--tensor-parallel-size", profile.tensor_parallel, ranks),
    ):
        if taken != asked:
            raise UsageError(f"profile {profile.name} was taken on {what} {taken}, not {asked}; calibrate one for it")


def check_profile(profile: Profile, spec: ModelSpec, device: str, ranks: int) -> None:
    """Raises UsageError where a profile of kernels can't serve."""
    check_measured_on(profile, spec, device, ranks)
    if len(set(spec.layers)) > 1:
        raise UsageError(f"profile {profile.name} holds one kind of layer; {spec.name} has several")


def measured_entry(profile: Profile, layers: Sequence[int], last: int) -> MeasuredCost:
    """The entry of a visit: its layers, the embedding with layer 0, the head with layer `last`."""
    count = len(layers)
    tokens = scaled(profile.layer, count)
    if layers[0] == 0:
        tokens = _sum(tokens, profile.embedding)
    grid, factor = profile.attention, count * profile.attention_scale
    return MeasuredCost(
        tokens=tokens,
        attention=msgspec.structs.replace(grid, ns=tuple(ns * factor for ns in grid.ns)),
        sampled=profile.head if layers[-1] == last else None,
    )


def _sum(a: Curve, b: Curve) -> Curve:
    """Two curves over the same points."""
    if a.at != b.at:
        raise UsageError("the layer and embedding curves of a profile must share their points")
    return Curve(at=a.at, ns=tuple(x + y for x, y in zip(a.ns, b.ns, strict=True)))
