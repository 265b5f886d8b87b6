"""Interleaved placement: a stage holds several runs of layers, and a token visits it once per run."""

from stageline.errors import BadInput, DoesNotFit
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.plan.partition import balanced
from stageline.plan.placement import Layers


def interleaved(
    spec: ModelSpec, device: Device, memory: Memory, options: PlanOptions, times_ns: list[int]
) -> list[Layers]:
    """Cut the layers into stages x chunks runs, as evenly as possible; stage s holds runs s, s + stages, ...

    As few stages as fit, or the number that `options.devices` gives. Raises BadInput for more runs than layers, and
    DoesNotFit.
    """
    chunks, most = options.chunks, memory.layers // options.chunks
    asked = options.devices // options.stage_devices if options.devices else None
    if most < (asked or 1):
        need = f"{asked or 1} stages of {chunks} chunks need {chunks * (asked or 1)} layers"
        raise BadInput("--chunks", chunks, f"{need}, {spec.name} has {memory.layers}", "use fewer chunks or stages")
    for stages in range(asked or 1, most + 1):
        layouts = _cut(times_ns, stages, chunks)
        if all(memory.need_bytes(layers) <= memory.capacity_bytes for layers in layouts):
            if asked in (None, stages):
                return layouts
            short = _short(spec, device, memory, _cut(times_ns, asked or 1, chunks))
            raise DoesNotFit(short, f"--devices {stages * options.stage_devices}")
    layouts = _cut(times_ns, most, chunks)
    raise DoesNotFit(f"{_short(spec, device, memory, layouts)}; use fewer --chunks, or --placement fewest")


def _cut(times_ns: list[int], stages: int, chunks: int) -> list[Layers]:
    cuts = balanced(times_ns, stages * chunks, lambda start, end: True)
    assert cuts is not None, "everything fits"
    runs = [tuple(range(start, end)) for start, end in cuts]
    return [tuple(layer for run in runs[s::stages] for layer in run) for s in range(stages)]


def _short(spec: ModelSpec, device: Device, memory: Memory, layouts: list[Layers]) -> str:
    need, stage = max((memory.need_bytes(layers), -i) for i, layers in enumerate(layouts))
    return (
        f"{spec.name} does not fit {len(layouts)} interleaved stages of {device.name}: stage-{-stage} needs {need:,} "
        f"bytes and has {memory.capacity_bytes:,}: {need - memory.capacity_bytes:,} bytes short"
    )
