"""Whether a model fits; if not, the error names the missing bytes and the smallest change that makes it fit."""

import msgspec

from stageline.errors import DoesNotFit, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.check_shape import ranks_divide
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.plan.partition import fewest
from stageline.units import counted

SMALLER_WEIGHTS = ("fp8", "int4")


def check_fit(spec: ModelSpec, device: Device, memory: Memory, options: PlanOptions) -> None:
    """Raise DoesNotFit, or UsageError for a number of devices that can't be used."""
    cuts = fewest(memory.layers, memory.fits)
    if isinstance(cuts, int):
        raise _layer_does_not_fit(spec, device, memory, options, cuts)
    if options.devices is None:
        return
    ranks = options.stage_devices
    if options.devices % ranks:
        raise UsageError(f"--devices {options.devices} is not a multiple of the {ranks} devices of a stage")
    if options.placement == "by-kind":
        raise UsageError("--devices can't be combined with --placement by-kind, whose rule gives the number of devices")
    stages = options.devices // ranks
    if options.placement == "interleaved":
        return  # its stages hold layers that are not consecutive; `interleaved` checks them
    if stages > memory.layers:
        hint = "use --replicas for more copies or --tensor-parallel-size for more devices per stage"
        reason = f"{stages} stages (--devices {options.devices}), but {spec.name} has {memory.layers} layers to cut"
        raise UsageError(f"{reason}; give at most {memory.layers} stages, or {hint}")
    if stages < len(cuts):
        raise _too_few(spec, device, memory, options, len(cuts))


def _layer_does_not_fit(
    spec: ModelSpec, device: Device, memory: Memory, options: PlanOptions, layer: int
) -> DoesNotFit:
    need = memory.run_need_bytes(layer, layer + 1)
    short = need - memory.capacity_bytes
    what = f"layer {layer} of {spec.name}"
    what += " with the embedding" * (layer == 0) + " with the head" * (layer == memory.layers - 1)
    requests = f" and {counted(memory.concurrency, 'request')} of {memory.context_tokens:,} tokens"
    reason = (
        f"{what}{requests} need {need:,} bytes; a stage of {options.stage_devices} {device.name} has "
        f"{memory.capacity_bytes:,} usable: {short:,} bytes short"
    )
    one = msgspec.structs.replace(options, concurrency=1, devices=None)
    change = _smallest_change(spec, device, options, one)
    return DoesNotFit(
        reason if change else f"{reason}; use a device with more memory{_or_else(spec, device, one)}", change
    )


def _too_few(spec: ModelSpec, device: Device, memory: Memory, options: PlanOptions, stages: int) -> DoesNotFit:
    asked = options.devices or 0
    have = asked // options.stage_devices * memory.capacity_bytes
    need = memory.run_need_bytes(0, memory.layers)
    if need > have:
        gap = f"{need:,} bytes are needed and {have:,} usable: {need - have:,} bytes short"
    else:
        gap = f"{need:,} bytes are needed of {have:,} usable, but whole layers can't be cut that evenly"
    change = f"--devices {stages * options.stage_devices}{_or_else(spec, device, options)}"
    return DoesNotFit(f"{spec.name} does not fit {asked} {device.name}: {gap}", change)


def fits_with(spec: ModelSpec, device: Device, options: PlanOptions) -> bool:
    """Whether a plan exists under other options."""
    cuts = fewest(len(spec.layers), Memory(spec, device, options).fits)
    if isinstance(cuts, int):
        return False
    return options.devices is None or len(cuts) <= options.devices // options.stage_devices


def _smallest_change(spec: ModelSpec, device: Device, options: PlanOptions, one: PlanOptions) -> str:
    """The first change that makes every layer fit, fewer requests or a larger tensor group; empty: none does.

    `one` are the options with a single request, on any number of devices.
    """
    if options.concurrency > 1 and fits_with(spec, device, one):
        return f"--concurrency {_most_requests(spec, device, one, options.concurrency)}"
    for ranks in (2, 4, 8, 16, 32, 64):
        wider = msgspec.structs.replace(one, tensor_parallel=ranks, concurrency=options.concurrency)
        allowed = ranks > options.tensor_parallel and ranks_divide(spec, ranks, options.expert_parallel > 1)
        if allowed and fits_with(spec, device, wider):
            return f"--tensor-parallel-size {ranks}"
    return ""


def _most_requests(spec: ModelSpec, device: Device, options: PlanOptions, too_many: int) -> int:
    """The most concurrent requests that fit, given that 1 does and `too_many` do not."""
    low, high = 1, too_many
    while high - low > 1:
        middle = (low + high) // 2
        if fits_with(spec, device, msgspec.structs.replace(options, concurrency=middle)):
            low = middle
        else:
            high = middle
    return low


def _or_else(spec: ModelSpec, device: Device, options: PlanOptions) -> str:
    """The first smaller weight format with which the model fits, as one more way out."""
    for name in SMALLER_WEIGHTS:
        smaller = spec.requantised(name)
        if smaller.weight_bytes() < spec.weight_bytes() and fits_with(smaller, device, options):
            return f", or --weights {name}"
    return ""
