"""Stages on different devices: which device, and which memory, every stage of a pipeline has."""

from collections.abc import Sequence
from itertools import groupby

from stageline.errors import BadInput, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.units import counted

FLAG = "--stage-devices"
MAX_STAGES = 4096


def parse_stage_devices(text: str) -> tuple[str, ...]:
    """The device of every stage: "a,b" or, of several stages in a row, "a:16,b:32". Raises BadInput."""
    found: list[str] = []
    for part in text.split(","):
        name, colon, count = part.strip().partition(":")
        stages = int(count) if count.isdecimal() and len(count) < 7 else 0
        if not name or (colon and not 1 <= stages <= MAX_STAGES):
            raise BadInput(FLAG, text, "not a device for every stage", "write h100-sxm,l40s or h100-sxm:16,l40s:32")
        found += [name] * (stages if colon else 1)
    return tuple(found)


class StageHardware:
    """The device and the memory of every stage."""

    def __init__(self, spec: ModelSpec, device: Device, options: PlanOptions) -> None:
        """`device` is that of all stages, unless the options have one for each."""
        self.mixed = bool(options.devices_by_stage)
        self._device, self._options = device, options
        found = {d.name: d for d in (device, *options.devices_by_stage)}
        self._memory = {name: Memory(spec, d, options) for name, d in found.items()}
        self.memory = self._memory[device.name]

    def device_of(self, stage: int) -> Device:
        """The device of a stage."""
        return self._options.device_of(stage, self._device)

    def memory_of(self, stage: int) -> Memory:
        """The memory of a stage on its device."""
        return self._memory[self.device_of(stage).name]


def check_stage_devices(options: PlanOptions, layers: int) -> None:
    """Refuse what stages on different devices can't be combined with. Raises UsageError or BadInput."""
    count = len(options.devices_by_stage)
    if not count:
        return
    if count > layers:
        reason = f"{count} stages, but the model has {layers} layers, and every stage holds at least one"
        raise BadInput(FLAG, _text(options.devices_by_stage), reason, f"give at most {layers} stages")
    if options.placement != "fewest":
        raise UsageError(f"{FLAG} can't be combined with --placement {options.placement}")
    if options.profile or options.efficiencies:
        raise UsageError(f"{FLAG} can't be combined with --profile, which was measured on one kind of device")
    each = options.stage_devices
    if options.devices is not None and options.devices != count * each:
        reason = f"{count} stages of {counted(each, 'device')}, but the replica has {options.devices}"
        raise BadInput(FLAG, _text(options.devices_by_stage), reason, f"give a device for each of its stages: {count}")


def _text(devices: Sequence[Device]) -> str:
    runs = [(name, len(list(same))) for name, same in groupby(device.name for device in devices)]
    return ",".join(f"{name}:{count}" if count > 1 else name for name, count in runs)
