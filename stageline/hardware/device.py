"""A device: its memory, bandwidth, compute and links, and the shares of their peaks that engines reach."""

from typing import Literal

import msgspec

from stageline.errors import UsageError
from stageline.hardware.costs import KernelCosts
from stageline.hardware.networks import CatalogStruct, MeasuredCollective, Network, ScaleUp
from stageline.model.formats import Precision

# What a serving engine takes from its share of memory beside weights and KV; see `stageline.plan.memory`.
MemoryShare = Literal["reserve", "static", "kv", "free"]


class CollectiveBuffers(CatalogStruct, frozen=True):
    """Memory that a communication library takes on each device of a group of up to `devices`."""

    devices: int
    bytes: int


class Peak(CatalogStruct, frozen=True):
    """Dense peak FLOP/s by precision; 0: the hardware does not support it."""

    bf16: int
    fp8: int = 0
    fp4: int = 0

    def precision(self, wanted: Precision) -> Precision:
        """The precision in which kernels multiply: bf16 if the hardware lacks the wanted one.

        Weights are then compressed alone; vLLM and SGLang do so with Marlin (FP4 on Hopper, FP8 on Ampere).
        """
        return wanted if getattr(self, wanted) else "bf16"

    def at(self, precision: Precision) -> int:
        """The peak at a precision, or at bf16 if the hardware lacks it."""
        peak: int = getattr(self, self.precision(precision))
        return peak


class Overhead(CatalogStruct, frozen=True):
    """Time that a roofline leaves out: launch overhead per operation, and fitted time per layer by kind of FFN."""

    op_ns: int = 0
    dense_layer_ns: int = 0
    moe_layer_ns: int = 0


class Share(CatalogStruct, frozen=True):
    """Shares of the peaks that are reached, 0 < share <= 1: FLOP/s, memory bandwidth, and usable memory."""

    flops: float
    bandwidth: float
    memory: float


class Device(CatalogStruct, frozen=True):
    """One accelerator."""

    name: str
    title: str
    kind: Literal["wafer", "gpu", "tpu", "lpu"]
    memory_bytes: int  # that a process sees, of which engines take their share
    bandwidth_bytes_per_s: int
    peak_flops: Peak
    share: Share
    overhead: Overhead
    scale_out: Network
    scale_up: ScaleUp | None = None
    all_reduce: tuple[MeasuredCollective, ...] = ()
    all_to_all: tuple[MeasuredCollective, ...] = ()
    nominal_memory_bytes: int = 0  # that the device is sold with; 0: a process sees all of it
    runtime_bytes: int = 0  # of one process beside weights, KV and activations: context and libraries
    collective_buffers: tuple[CollectiveBuffers, ...] = ()
    one_shot_ns: int = 0  # latency of a one-shot all-reduce inside the scale-up domain; 0: serving engines have none
    costs_of: str = ""  # the device whose kernel constants it takes, by architecture; empty: its own, if it has any
    costs: KernelCosts | None = None  # None: `share` and `overhead` hold for all kinds and formats

    def usable_bytes(self, memory_share: float | None = None) -> int:
        """floor(memory_bytes x share); `memory_share` replaces the device's own."""
        return int(self.memory_bytes * (self.share.memory if memory_share is None else memory_share))

    def engine_bytes(self, group_devices: int) -> int:
        """What a serving engine takes of one device beside weights, KV and activations, in a group of devices."""
        buffers = sorted(self.collective_buffers, key=lambda b: b.devices)
        if group_devices == 1 or not buffers:
            return self.runtime_bytes
        return self.runtime_bytes + next((b.bytes for b in buffers if b.devices >= group_devices), buffers[-1].bytes)


def on_topology(
    device: Device, devices: int | None = None, scale_up: Network | None = None, scale_out: Network | None = None
) -> Device:
    """The device in nodes of `devices`, with other networks. None: unchanged.

    A device without a scale-up domain gets one from `scale_up` and `devices`. Collectives that were measured on a link
    that changes are dropped, so that the formulas of `stageline.cost.collective` apply. Raises UsageError for a domain
    without a link.
    """
    old = device.scale_up
    if devices is None and scale_up is None and scale_out is None:
        return device
    inner = scale_up or old
    if (devices or 1) > 1 and inner is None:
        raise UsageError(f"--devices-per-node {devices}: {device.name} has no scale-up link; name one with --scale-up")
    if scale_up and old is None and devices is None:
        raise UsageError(f"--scale-up: say with --devices-per-node how many {device.name} share it")
    count = devices or (old.devices if old else 1)
    up = inner and ScaleUp(bytes_per_s=inner.bytes_per_s, latency_ns=inner.latency_ns, devices=count)
    before = old.devices if old else 1
    inside = 0 if scale_up else min(before, count)  # groups of up to `inside` or over `outside` devices keep their rows
    outside = 1 << 62 if scale_out or count != before else before
    return msgspec.structs.replace(
        device,
        scale_up=up if count > 1 else None,
        scale_out=scale_out or device.scale_out,
        all_reduce=tuple(r for r in device.all_reduce if r.devices <= inside or r.devices > outside),
        all_to_all=tuple(r for r in device.all_to_all if r.devices <= inside or r.devices > outside),
        one_shot_ns=0 if scale_up or count == 1 else device.one_shot_ns,
        costs=device.costs and _on_topology(device.costs, inside),
    )


def _on_topology(costs: KernelCosts, inside: int) -> KernelCosts:
    """Without the collectives of groups that the changed node can't have measured."""
    return msgspec.structs.replace(
        costs,
        all_reduce=tuple(r for r in costs.all_reduce if r.devices <= inside),
        reduce_scatter=tuple(r for r in costs.reduce_scatter if r.devices <= inside),
        all_gather=tuple(r for r in costs.all_gather if r.devices <= inside),
    )
