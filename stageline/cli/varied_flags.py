"""The settings that a search varies: each flag takes one value, or several separated by commas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from stageline.cli.flags import MAX_OVERHEAD_NS
from stageline.cli.groups import MICROBATCHES, MODEL, SCHEDULING
from stageline.cli.plan_flags import ELEMENTS
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import MAX_COUNT
from stageline.errors import BadInput, UsageError
from stageline.units import parse_duration_ns

Varied = str | None
SWITCH = {"on": True, "off": False, "true": True, "false": False}


def _list(text: str, *names: str, group: Any = SCHEDULING) -> Parameter:
    return Parameter(name=names or None, group=group, help=f"{text}; a value, or several like A,B.")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class VariedFlags:
    """Lists of values; what is not given is the serving engine's."""

    weights: Annotated[
        Varied,
        _list("Weight format: as-shipped, bf16, fp8, int8, int4, mxfp4 or nvfp4", group=MODEL),
    ] = None
    kv_cache_dtype: Annotated[Varied, _list("Type of the KV cache; auto is the model's", group=MODEL)] = None
    serving_engine: Annotated[
        Varied,
        _list(
            "How batches form: names in the catalogue's engines/ or TOML files",
            "--serving-engine",
            "--engine-profile",
            group=MICROBATCHES,
        ),
    ] = None
    batched_tokens: Annotated[Varied, _list("Largest number of new tokens in a microbatch", group=MICROBATCHES)] = None
    max_num_batched_tokens: Annotated[
        Varied, _list("Largest number of new tokens in a step of a data-parallel rank", group=MICROBATCHES)
    ] = None
    microbatch: Annotated[
        Varied,
        _list("Largest number of sequences in a microbatch", "--microbatch", "--microbatches", group=MICROBATCHES),
    ] = None
    max_num_seqs: Annotated[
        Varied, _list("Largest number of running sequences of a data-parallel rank", group=MICROBATCHES)
    ] = None
    credits_: Annotated[Varied, _list("Microbatches in flight per replica", "--credits", group=MICROBATCHES)] = None
    prefix_cache: Annotated[
        Varied, _list("Keep the KV of prompts and reuse it: on, off or on,off", group=MICROBATCHES)
    ] = None
    enable_prefix_caching: Annotated[
        bool | None,
        Parameter(
            name="--enable-prefix-caching",
            negative="--no-enable-prefix-caching",
            group=MICROBATCHES,
            help="The same as --prefix-cache on, or off.",
        ),
    ] = None
    max_running: Annotated[Varied, _list("Largest number of running sequences per replica")] = None
    batching: Annotated[Varied, _list(f"Size of microbatches: {BATCHING.choices}")] = None
    queueing: Annotated[Varied, _list(f"Order of waiting requests: {QUEUEING.choices}")] = None
    kv: Annotated[Varied, _list(f"KV for all tokens up front, or block by block: {KV.choices}")] = None
    balance: Annotated[Varied, _list(f"Replica of an arriving request: {ROUTING.choices}")] = None
    snapshot_tokens: Annotated[Varied, _list("Tokens between state snapshots of linear layers in the prefix cache")] = (
        None
    )
    overhead: Annotated[Varied, _list("Router time per microbatch, like 50us")] = None

    def vary(self) -> dict[str, list[Any]]:
        """Values of every setting that was given, as the API takes them. Raises UsageError or BadInput."""
        found: dict[str, list[Any]] = {}
        for field, (name, read) in _READ.items():
            text: str | None = getattr(self, field)
            if text is not None:
                found[name] = [
                    read(f"--{field.strip('_').replace('_', '-')}", part.strip()) for part in text.split(",")
                ]
        if self.enable_prefix_caching is not None:
            if "prefix_cache" in found:
                raise UsageError("--prefix-cache and --enable-prefix-caching say the same thing: give one of them")
            found["prefix_cache"] = [self.enable_prefix_caching]
        return found


def _count(flag: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not text.strip("0"):
        raise BadInput(flag, text[:_SHOWN], "not a positive whole number", "give one, or several such as 64,256")
    if len(text) > _SHOWN or int(text) > MAX_COUNT:
        raise BadInput(flag, text[:_SHOWN], "too large", f"give at most {MAX_COUNT:,}")
    return int(text)


def _switch(flag: str, text: str) -> bool:
    if text not in SWITCH:
        raise BadInput(flag, text, "neither on nor off", "give on, off or on,off")
    return SWITCH[text]


def _duration(flag: str, text: str) -> int:
    found = parse_duration_ns(text, flag)
    if found > MAX_OVERHEAD_NS:
        raise BadInput(flag, text, "above 15 minutes per microbatch", "give a shorter time")
    return found


def _element(flag: str, text: str) -> str:
    if text not in ELEMENTS:
        raise BadInput(flag, text, "no such type", f"give one of {', '.join(ELEMENTS)}")
    return text


def _word(flag: str, text: str) -> str:
    if not text:
        raise BadInput(flag, text, "an empty value", "give names separated by commas")
    return text


_SHOWN = 20  # digits of a number that is refused
_READ: dict[str, tuple[str, Callable[[str, str], Any]]] = {  # a flag's field, its setting, and how a value is read
    **{name: (name, _word) for name in ("weights", "serving_engine", "batching", "queueing", "kv", "balance")},
    **{
        name: (name.strip("_"), _count)
        for name in (
            "batched_tokens", "max_num_batched_tokens", "microbatch", "max_num_seqs", "credits_", "max_running",
            "snapshot_tokens",
        )
    },
    "kv_cache_dtype": ("kv_cache_dtype", _element),
    "prefix_cache": ("prefix_cache", _switch),
    "overhead": ("overhead_ns", _duration),
}  # fmt: skip
