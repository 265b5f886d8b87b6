"""`stageline plan --training`: what a training run takes in memory, days and money."""

from dataclasses import dataclass, fields
from typing import Annotated

from cyclopts import Parameter

from stageline import units
from stageline.cli import output
from stageline.cli.groups import TRAINING
from stageline.cli.numbers import DECIMAL, WHOLE
from stageline.cli.plan_flags import ShapeFlags
from stageline.errors import DoesNotFit, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.training import Training, TrainingReport, train

MAX_RUN_TOKENS, MAX_RANKS = 10**18, 1 << 20


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFlags:
    """With --training; the ranks are those of --tp, --cp, --pp and --replicas."""

    training: Annotated[bool, Parameter(negative="", help="Plan a training run instead of serving.")] = False
    zero: Annotated[
        int,
        WHOLE,
        Parameter(help="ZeRO stage: 1 shards the optimiser over data ranks, 2 also gradients, 3 also weights."),
    ] = 1
    sequence: Annotated[str, Parameter(help="Sequence length in tokens, like 8192 or 128K.")] = "8192"
    batch: Annotated[int, WHOLE, Parameter(help="Sequences per data rank and step, one per microbatch.")] = 1
    interleaved: Annotated[int, WHOLE, Parameter(help="Model chunks per stage, as in an interleaved pipeline.")] = 1
    recompute: Annotated[
        bool, Parameter(negative="", help="Keep only the inputs of layers and recompute the rest.")
    ] = False
    tokens: Annotated[int, WHOLE, Parameter(help="Tokens of the whole run, to compute its duration; 0: unknown.")] = 0
    price: Annotated[
        float, DECIMAL, Parameter(help="Price of one device per hour, to compute the cost of the run; 0: unknown.")
    ] = 0.0

    def check(self) -> None:
        """Raises UsageError for flags that mean nothing without --training."""
        names = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if names and not self.training:
            flags = ", ".join(f"--{name}" for name in names)
            raise UsageError(f"{flags}: only for a training run: add --training, or leave it out")


def plan_training(spec: ModelSpec, device: Device, f: TrainingFlags, shape: ShapeFlags, *, as_json: bool) -> int:
    """Print parameters, gradients, optimiser and activations per device, bubble, MFU, days, money.

    Raises DoesNotFit after printing when the fullest device has too little memory.
    """
    if not 0 <= f.tokens <= MAX_RUN_TOKENS:
        raise UsageError(f"--tokens {f.tokens}: must lie between 0 and {MAX_RUN_TOKENS:,}")
    if not 0 <= f.price < MAX_RANKS:
        raise UsageError(f"--price {f.price}: must be 0 or more, and below {MAX_RANKS:,}")
    ranks = (shape.tensor_parallel, shape.context_parallel, shape.stages or 1, shape.replicas)
    if max(*ranks, f.batch, f.interleaved) > MAX_RANKS:
        raise UsageError(f"--tp, --cp, --pp, --replicas, --batch, --interleaved: at most {MAX_RANKS:,}")
    training = Training(
        tp=ranks[0], cp=ranks[1], pp=ranks[2], dp=ranks[3], zero=f.zero,
        sequence_tokens=units.parse_tokens(f.sequence, "--sequence"), batch_sequences=f.batch,
        interleaved=f.interleaved, recompute=f.recompute, tokens=f.tokens, price_per_device_hour=f.price,
    )  # fmt: skip
    found = train(spec, device, training)
    if as_json:
        output.print_json(found)
    else:
        output.print_lines(_lines(found))
    if not found.fits:
        short = found.total_bytes - found.usable_bytes
        hint = "shard more (--tp, --pp, --zero 3) or keep less (--recompute)"
        raise DoesNotFit(f"the fullest device needs {short:,} bytes more than it has; {hint}")
    return 0


def _lines(r: TrainingReport) -> list[str]:
    lines = [
        f"devices      {r.devices:,}",
        f"state        {units.bytes_text(r.state_bytes)} for {r.parameters:,} parameters, 16 bytes each",
        f"per device   weights {units.bytes_text(r.weight_bytes)}, gradients {units.bytes_text(r.gradient_bytes)}, "
        f"optimiser {units.bytes_text(r.optimiser_bytes)}, activations {units.bytes_text(r.activation_bytes)}: "
        f"{units.bytes_text(r.total_bytes)} of {units.bytes_text(r.usable_bytes)}",
        f"speed        bubble {r.bubble_ratio:.1%}, MFU {r.mfu:.1%} at best, {r.flops_per_token:,} FLOPs per token",
    ]
    return lines + ([f"run          {r.days:,.1f} days, {r.money:,.0f} at the price given"] if r.days else [])
