"""Profiles: measured times of one kind of layer on one machine, from which the planner makes `MeasuredCost` entries."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost
from stageline.errors import UsageError
from stageline.model.spec import ModelSpec

PROFILE_FORMAT = "stageline-profile/1"


class Residual(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a profile is from measurements: relative errors, profile / measured - 1."""

    of: str
    points: int
    median: float
    p90_absolute: float
    mean: float | None = None  # mean of the profile / mean of the measurements - 1


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Times of one layer, of the embedding and of the head of a model on one tensor group."""

    name: str
    model: str
    device: str
    layer: Curve  # by new tokens
    attention: AttentionGrid  # of one layer
    embedding: Curve  # by new tokens
    head: Curve  # final norm, head and sampler, by sampled rows
    tensor_parallel: int = 1
    attention_scale: float = 1.0  # fitted factor: a batch of unequal contexts takes longer than one of their mean
    residuals: tuple[Residual, ...] = ()
    source: str = ""
    format: str = PROFILE_FORMAT


def scaled(curve: Curve, factor: float) -> Curve:
    """Every value times a factor."""
    return Curve(at=curve.at, ns=tuple(ns * factor for ns in curve.ns))


class MeasuredOn(Protocol):
    """What a measurement holds for: a Profile or Efficiencies."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def tensor_parallel(self) -> int: ...


def check_measured_on(profile: MeasuredOn, spec: ModelSpec, device: str, ranks: int) -> None:
    """Refuse a measurement of another model, device or tensor group. Raises UsageError."""
    for what, measured, asked in (
        ("model", profile.model, spec.name),
        ("device", profile.device, device),
        ("--tensor-parallel-size", profile.tensor_parallel, ranks),
    ):
        if measured != asked:
            raise UsageError(
                f"profile {profile.name} was measured with {what} {measured}, not {asked}; calibrate one for it"
            )


def check_profile(profile: Profile, spec: ModelSpec, device: str, ranks: int) -> None:
    """Refuse a profile of another model, device or tensor group, and a model with several kinds of layers.

    Raises UsageError.
    """
    check_measured_on(profile, spec, device, ranks)
    if len(set(spec.layers)) > 1:
        raise UsageError(f"profile {profile.name} holds one kind of layer; {spec.name} has several")


def measured_entry(profile: Profile, layers: Sequence[int], last: int) -> MeasuredCost:
    """The cost entry of a visit to `layers`; layer 0 comes with the embedding, layer `last` with the head."""
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
    """The sum of two curves over the same points. Raises UsageError."""
    if a.at != b.at:
        raise UsageError("the layer and embedding curves of a profile must share their points")
    return Curve(at=a.at, ns=tuple(x + y for x, y in zip(a.ns, b.ns, strict=True)))
