"""The TOML file of a serving engine: how it forms batches, what bounds them, and how it keeps KV."""

from itertools import pairwise
from typing import Any, Literal

import msgspec

from stageline.catalog.citation import Citation, check_settings
from stageline.catalog.decode import convert
from stageline.errors import BadInput
from stageline.hardware.device import Device, MemoryShare
from stageline.hardware.networks import CatalogStruct

Credits = Literal["stages", "fill"]
MAX_LIMIT = 1 << 40
MAX_GRAPH_SIZE = 1 << 16
WIDE = 4  # tensor ranks from which `max_graph_size_wide` counts


class EngineLimits(CatalogStruct, frozen=True):
    """Default limits on some devices. The first row that matches a device counts."""

    max_num_batched_tokens: int  # new tokens in one step of one data-parallel rank
    max_num_seqs: int | None = None  # running sequences of one data-parallel rank; absent: as many as memory holds
    kinds: tuple[Literal["wafer", "gpu", "tpu", "lpu"], ...] = ()  # device classes; empty: all
    devices: tuple[str, ...] = ()  # catalogue names; empty: all
    min_memory_bytes: int = 0  # of the device
    max_graph_size: int | None = None  # in place of `graphs.most`
    max_graph_size_wide: int | None = None  # with four tensor ranks or more; absent: as with fewer

    def matches(self, device: str, kind: str, memory_bytes: int) -> bool:
        """Whether the row is for such a device."""
        known = (not self.kinds or kind in self.kinds) and (not self.devices or device in self.devices)
        return known and memory_bytes >= self.min_memory_bytes


class CudaGraphs(CatalogStruct, frozen=True):
    """The numbers of new tokens of one rank with a captured CUDA graph, and what a step without one costs."""

    first: tuple[int, ...]  # the smallest sizes
    ranges: tuple[tuple[int, int], ...]  # (start, step): from start in steps, up to the start of the next range
    most: int  # the largest size; a row of [[limits]] may have its own
    eager_op_ns: int  # host time per operation of a step that runs without a graph
    sequence_sizes: int = 0  # the largest size is also at most so many per sequence of max_num_seqs; 0: no such bound
    counts: Literal["tokens", "sequences"] = "tokens"  # a decode step of a sequence with drafts has several tokens
    decode_only: bool = False  # a microbatch with a prefill runs without one
    exact: bool = False  # only the sizes themselves; other steps are not padded
    kinds: tuple[Literal["wafer", "gpu", "tpu", "lpu"], ...] = ("gpu",)

    def sizes(self, most: int) -> tuple[int, ...]:
        """The sizes up to `most`, ascending."""
        ends = [start for start, _ in self.ranges[1:]] + [most + 1]
        steps = (size for (start, step), end in zip(self.ranges, ends, strict=True) for size in range(start, end, step))
        return tuple(size for size in (*self.first, *steps) if size <= most)


class MemoryReserve(CatalogStruct, frozen=True):
    """What an engine leaves free of each device: its default share of memory is the rest."""

    bytes: int
    batched_token_bytes: int = 0  # per new token of a step
    graph_size_bytes: int = 0  # per sequence of the largest captured size
    group_device_bytes: int = 0  # per device of all stages together
    least_bytes: int = 0  # on devices of more than `least_above_bytes`
    least_above_bytes: int = 0

    def share(self, memory_bytes: int, batched_tokens: int, graph_size: int, devices: int) -> float:
        """(memory - reserve) / memory, to three places; at least 0.001."""
        size = self.bytes + self.batched_token_bytes * batched_tokens + self.graph_size_bytes * graph_size
        size += self.group_device_bytes * devices
        if memory_bytes > self.least_above_bytes:
            size = max(size, self.least_bytes)
        return max(0.001, round((memory_bytes - size) / memory_bytes, 3))


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
    activations: MemoryShare = "reserve"  # what is taken from the share of memory, and of what it is a share
    reserve: MemoryReserve | None = None  # absent: the share of memory that the device has
    sampler_bytes: int = 0  # per running sequence and entry of the vocabulary, beside the logits of the head; 0: none
    overhead_ns: int = 0  # host time per step that does not overlap with the devices
    front_end_ns: int = 0  # HTTP, tokenizer and hop to the scheduler, per request
    host_sequence_ns: int = 0  # host time per sequence and step of one data-parallel rank
    async_scheduling: bool = False  # with one stage: the host's time hides behind the devices'
    pipelined_async_scheduling: bool = False  # with several stages
    async_batching: str = ""  # with several stages and asynchronous scheduling; empty: pipelined_batching
    graphs: CudaGraphs | None = None  # absent: neither padding nor launches count
    default_for: tuple[Literal["wafer", "gpu", "tpu", "lpu"], ...] = ()
    left_out: tuple[str, ...] = ()  # what the engine does and the profile does not say

    def limits_on(self, device: str, kind: str, memory_bytes: int) -> EngineLimits:
        """The limits on a device. The last row matches all devices."""
        return next(row for row in self.limits if row.matches(device, kind, memory_bytes))

    def graph_most(self, limits: EngineLimits, tensor_ranks: int, max_num_seqs: int | None) -> int:
        """The largest captured size; 0 without graphs."""
        if self.graphs is None:
            return 0
        wide = limits.max_graph_size_wide if tensor_ranks >= WIDE else None
        most = wide or limits.max_graph_size or self.graphs.most
        bounds = [self.graphs.sequence_sizes * max_num_seqs] if self.graphs.sequence_sizes and max_num_seqs else []
        return min(most, *bounds, limits.max_num_batched_tokens)

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
    if engine.graphs is not None:
        _check_graphs(engine.graphs, f"{place}: $.graphs")
    for name in ("overhead_ns", "front_end_ns", "host_sequence_ns", "sampler_bytes"):
        if not 0 <= getattr(engine, name) <= MAX_LIMIT:
            raise BadInput(f"{place}: $.{name}", getattr(engine, name), f"must lie between 0 and {MAX_LIMIT:,}")
    for i, row in enumerate(engine.limits):
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_graph_size", "max_graph_size_wide"):
            value = getattr(row, name)
            if value is not None and not 1 <= value <= MAX_LIMIT:
                raise BadInput(f"{place}: $.limits[{i}].{name}", value, f"must lie between 1 and {MAX_LIMIT:,}")
    last = engine.limits[-1] if engine.limits else None
    if last is None or last.kinds or last.devices or last.min_memory_bytes:
        way_out = "end with a row of [[limits]] that has none of kinds, devices and min_memory_bytes"
        raise BadInput(f"{place}: $.limits", len(engine.limits), "no row for all other devices", way_out)


def _check_graphs(graphs: CudaGraphs, place: str) -> None:
    starts = [*graphs.first, *(start for start, _ in graphs.ranges)]
    if any(a >= b for a, b in pairwise([0, *starts])) or any(step < 1 for _, step in graphs.ranges):
        raise BadInput(f"{place}.first, ranges", starts, "sizes must ascend from 1", "write them in ascending order")
    for name, least in (("most", 0), ("eager_op_ns", 0), ("sequence_sizes", 0)):
        value = getattr(graphs, name)
        most = MAX_GRAPH_SIZE if name != "eager_op_ns" else MAX_LIMIT
        if not least <= value <= most:
            raise BadInput(f"{place}.{name}", value, f"must lie between {least} and {most:,}")
