"""The room for KV when a user gives it, and the longest request that a room holds."""

from collections.abc import Sequence

import msgspec

from stageline.errors import DoesNotFit, UsageError
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions
from stageline.plan.schema import StagePlan
from stageline.units import counted


def with_kv_bytes(stage: StagePlan, size: int | None, device_bytes: int) -> StagePlan:
    """The stage with `size` bytes of every device for KV and state, instead of what is left. Raises DoesNotFit.

    As vLLM's --kv-cache-memory-bytes: the share of memory that it may use no longer counts, and nothing is kept free.
    """
    if size is None:
        return stage
    if stage.weight_bytes + size * stage.devices > device_bytes * stage.devices:
        room = max(0, device_bytes - stage.weight_bytes // stage.devices)
        raise DoesNotFit(
            f"--kv-cache-memory-bytes {size:,}: a device of {stage.name} has {room:,} bytes beside its weights"
        )
    return msgspec.structs.replace(stage, kv_budget_bytes=size * stage.devices)


def with_blocks(stage: StagePlan, blocks: int | None, device_bytes: int) -> StagePlan:
    """The stage with room for exactly `blocks` KV blocks, on devices of that size. Raises UsageError or DoesNotFit."""
    if blocks is None:
        return stage
    flag = f"--num-gpu-blocks-override {blocks:,}"
    if stage.windows or stage.state_bytes or not stage.kv_block_bytes:
        reason = f"{stage.name} keeps more than blocks of equal size (sliding windows, or state of linear attention)"
        raise UsageError(f"{flag}: {reason}; say with --memory-share how much memory KV may take")
    need = stage.weight_bytes + blocks * stage.kv_block_bytes
    if need > device_bytes * stage.devices:
        room = max(0, device_bytes * stage.devices - stage.weight_bytes) // stage.kv_block_bytes
        raise DoesNotFit(f"{flag}: {stage.name} has memory for at most {room:,} blocks beside its weights")
    return msgspec.structs.replace(stage, kv_budget_bytes=blocks * stage.kv_block_bytes)


def check_given_room(stages: Sequence[StagePlan], requests: Sequence[int], context: int, options: PlanOptions) -> None:
    """Refuse given KV that is smaller than the planned requests of `context` tokens. Raises DoesNotFit.

    `requests` is how many of them each stage holds.
    """
    if (options.kv_blocks is None and options.kv_cache_bytes is None) or min(requests) >= options.concurrency:
        return
    stage = stages[min(range(len(stages)), key=lambda i: requests[i])]
    ranks = options.group.attention_replicas
    copies = options.concurrency * ranks
    held = _longest_in(stages, ranks, options.block_tokens, context)
    shorter = _longest_in(stages, copies, options.block_tokens, context)
    blocks = -(-context // options.block_tokens)
    if options.kv_blocks is not None:
        given, need = f"--num-gpu-blocks-override {options.kv_blocks:,}", f"{copies * blocks:,} blocks"
    else:
        size = max(-(-copies * s.kv_bytes(blocks, 1) // s.devices) for s in stages)
        given, need = f"--kv-cache-memory-bytes {options.kv_cache_bytes:,}", f"{size:,} bytes"
    wanted = f"{counted(options.concurrency, 'request')} of {context:,} tokens"
    least = f"a request of at most {held:,} tokens" if held else "no request of one token"
    raise DoesNotFit(
        f"{given}: the KV cache that was given to {stage.name} holds {least}; {wanted} take {need}",
        f"{given.split()[0]} {need.split()[0].replace(',', '')}"
        + (f", or --max-model-len {shorter}" if shorter else ""),
    )


def _longest_in(stages: Sequence[StagePlan], ranks: int, block_tokens: int, most: int) -> int:
    """The tokens of the longest request, at most `most`, of which every stage holds one for each rank."""
    fits, too_long = 0, most + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if all(s.kv_bytes(-(-middle // block_tokens), 1) * ranks <= s.kv_budget_bytes for s in stages):
            fits = middle
        else:
            too_long = middle
    return fits


def longest(stages: Sequence[StagePlan], spec: ModelSpec, options: PlanOptions) -> int:
    """The limit on prompt and output together: what was given, else the model's; 0: none.

    With `longest_that_fits` it is the largest number of tokens, at most the model's, of which every stage holds one
    request, as vLLM's --max-model-len auto. Raises DoesNotFit, or UsageError for a model without a limit.
    """
    if not options.longest_that_fits:
        return options.max_model_len or spec.context
    if not spec.context:
        raise UsageError(f"--max-model-len auto: {spec.name} names no longest context; give a number")
    fits = _longest_in(stages, options.group.attention_replicas, options.block_tokens, spec.context)
    if not fits:
        raise DoesNotFit("--max-model-len auto: the KV cache holds no request of one token")
    return fits
