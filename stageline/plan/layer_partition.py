"""Layers per stage as an engine, or its user, splits them: `--layer-partition`."""

from stageline.errors import BadInput, DoesNotFit
from stageline.model.spec import ModelSpec
from stageline.plan.memory import Memory
from stageline.plan.partition import Cuts
from stageline.plan.stage_hardware import StageHardware

FLAG = "--layer-partition"


def vllm_split(layers: int, stages: int) -> list[int]:
    """Even; one layer more for stages from the second last backwards, never for the last, which has the head.

    Source: `get_pp_indices` in vllm/distributed/utils.py.
    """
    counts = [layers // stages] * stages
    for i in range(2, layers % stages + 2):
        counts[-i] += 1
    return counts


def sglang_split(layers: int, stages: int) -> list[int]:
    """Even; one layer more for the last stages. Source: `get_pp_indices` in sglang/srt/distributed/utils.py."""
    more = layers % stages
    return [layers // stages + (i >= stages - more) for i in range(stages)]


def trtllm_split(layers: int, stages: int) -> list[int]:
    """Even; one layer more for the first stages. Source: `Mapping.pp_layers` in tensorrt_llm/mapping.py."""
    more = layers % stages
    return [layers // stages + (i < more) for i in range(stages)]


SPLITS = {"vllm": vllm_split, "sglang": sglang_split, "trtllm": trtllm_split}


def parse_partition(text: str) -> str | tuple[int, ...]:
    """A name, or layers per stage like 20,20,20,20. Raises BadInput."""
    if text == "balanced" or text in SPLITS:
        return text
    counts = [part.strip() for part in text.split(",")]
    if not all(count.isdecimal() and len(count) < 7 for count in counts):
        reason = "neither layers per stage nor a known split"
        raise BadInput(FLAG, text, reason, f"give {', '.join(SPLITS)}, balanced, or counts like 20,20,20,20")
    layers = tuple(int(count) for count in counts)
    if 0 in layers:
        way_out = "give every stage a layer or more, or fewer stages"
        raise BadInput(FLAG, text, f"stage {layers.index(0)} has no layer", way_out)
    return layers


def given_cuts(spec: ModelSpec, hardware: StageHardware, partition: str | tuple[int, ...], stages: int) -> Cuts:
    """The cuts of a partition. Raises BadInput if it does not add up, DoesNotFit for a stage that does not fit."""
    layers = len(spec.layers)
    counts = SPLITS[partition](layers, stages) if isinstance(partition, str) else list(partition)
    text = ",".join(map(str, counts))
    if len(counts) != stages:
        way_out = f"give {stages} numbers, or --pipeline-parallel-size {len(counts)}"
        raise BadInput(FLAG, text, f"{len(counts)} stages, but the replica has {stages}", way_out)
    if sum(counts) != layers:
        reason = f"{sum(counts)} layers, but {spec.name} has {layers}"
        raise BadInput(FLAG, text, reason, f"the numbers must add up to {layers}")
    cuts, start = [], 0
    for stage, count in enumerate(counts):
        end, memory = start + count, hardware.memory_of(stage)
        need = memory.run_need_bytes(start, end)
        if need > memory.capacity_bytes:
            have, short = memory.capacity_bytes, need - memory.capacity_bytes
            raise DoesNotFit(
                f"{FLAG} {text}: stage {stage} with layers {start} to {end - 1} of {spec.name} needs {need:,} bytes; "
                f"its {hardware.device_of(stage).name} have {have:,} usable: {short:,} bytes short; give it "
                f"{_most(memory, start)} layers or fewer"
            )
        cuts.append((start, end))
        start = end
    return cuts


def _most(memory: Memory, start: int) -> int:
    """The most layers from `start` on that fit a stage."""
    end = start
    while end < memory.layers and memory.fits(start, end + 1):
        end += 1
    return end - start
