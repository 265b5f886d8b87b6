"""The TOML file of a serving engine: how it forms batches, what bounds them, and how it keeps KV."""

from typing import Any, Literal

import msgspec

from stageline.catalog.citation import Citation, check_settings
from stageline.catalog.decode import convert
from stageline.errors import BadInput
from stageline.hardware.device import Device
from stageline.hardware.networks import CatalogStruct

Credits = Literal["stages", "fill"]
MAX_LIMIT = 1 << 40


class EngineLimits(CatalogStruct, frozen=True):
    """Default limits on some devices. The first row that matches a device counts."""

    max_num_batched_tokens: int  # new tokens in one step of one data-parallel rank
    max_num_seqs: int | None = None  # running sequences of one data-parallel rank; absent: as many as memory holds
    kinds: tuple[Literal["wafer", "gpu", "tpu", "lpu"], ...] = ()  # device classes; empty: all
    devices: tuple[str, ...] = ()  # catalogue names; empty: all
    min_memory_bytes: int = 0  # of the device

    def matches(self, device: str, kind: str, memory_bytes: int) -> bool:
        """Whether the row is for such a device."""
        known = (not self.kinds or kind in self.kinds) and (not self.devices or device in self.devices)
        return known and memory_bytes >= self.min_memory_bytes


class ServingEngine(CatalogStruct, frozen=True):
    """A serving engine's profile. Policies are names of `stageline.engine.policies`."""

    name: str
    title: str
    release: str  # that the settings were read from
    credits: Credits  # batches in flight: one per stage, or as many as fill the pipeline; a single stage has one
    batch_holds: Literal["all", "share"]  # at most: all that may run, or an equal share of them per stage
    batching: str  # with one stage
    pipelined_batching: str  # with several stages
    queueing: str
    kv: str
    prefix_cache: bool
    prefix_cache_with_state: bool  # also for models with linear attention
    block_tokens: int
    limits: tuple[EngineLimits, ...]
    overhead_ns: int = 0  # host time per microbatch, of the router
    host_step_ns: int = 0  # host time of a step that does not overlap with the devices, on every visit
    host_sequence_ns: int = 0  # the same, per sequence of the step
    front_end_ns: int = 0  # HTTP, tokenizer and hop to the scheduler, per request
    default_for: tuple[Literal["wafer", "gpu", "tpu", "lpu"], ...] = ()
    left_out: tuple[str, ...] = ()  # what the engine does and the profile does not say

    def limits_on(self, device: str, kind: str, memory_bytes: int) -> EngineLimits:
        """The limits on a device. The last row matches all devices."""
        return next(row for row in self.limits if row.matches(device, kind, memory_bytes))

    def limits_of(self, device: Device) -> EngineLimits:
        """The limits on a device of the catalogue."""
        return self.limits_on(device.name, device.kind, device.memory_bytes)


class EngineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A serving engine of the catalogue, and the sources of its settings."""

    engine: ServingEngine
    sources: tuple[Citation, ...]


def engine_entry(document: dict[str, Any], place: str) -> EngineEntry:
    """A serving engine from its TOML document. Raises BadInput naming file and field."""
    sources = convert(document.get("source", []), tuple[Citation, ...], f"{place}: source")
    engine = convert({k: v for k, v in document.items() if k != "source"}, ServingEngine, place)
    check_settings(document, sources, place)
    _check(engine, place)
    return EngineEntry(engine=engine, sources=sources)


def _check(engine: ServingEngine, place: str) -> None:
    if not 1 <= engine.block_tokens <= MAX_LIMIT:
        raise BadInput(f"{place}: $.block_tokens", engine.block_tokens, f"must lie between 1 and {MAX_LIMIT:,}")
    for name in ("overhead_ns", "host_step_ns", "host_sequence_ns", "front_end_ns"):
        if not 0 <= getattr(engine, name) <= MAX_LIMIT:
            raise BadInput(f"{place}: $.{name}", getattr(engine, name), f"must lie between 0 and {MAX_LIMIT:,}")
    for i, row in enumerate(engine.limits):
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            value = getattr(row, name)
            if value is not None and not 1 <= value <= MAX_LIMIT:
                raise BadInput(f"{place}: $.limits[{i}].{name}", value, f"must lie between 1 and {MAX_LIMIT:,}")
    last = engine.limits[-1] if engine.limits else None
    if last is None or last.kinds or last.devices or last.min_memory_bytes:
        way_out = "end with a row of [[limits]] that has none of kinds, devices and min_memory_bytes"
        raise BadInput(f"{place}: $.limits", len(engine.limits), "no row for all other devices", way_out)
