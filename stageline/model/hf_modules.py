"""Names of modules in checkpoints: which of them hold a layer's weights, and the patterns that name them."""

import re
from collections.abc import Iterable

from stageline.errors import BadInput
from stageline.model.attention import Attention, GatedDelta, Lightning, Mamba, Mamba2, Parallel
from stageline.model.formats import WeightClass

PREFIXES = ("language_model.model.", "model.language_model.", "model.", "backbone.", "language_model.", "")

# One module per class of weights stands for all of them; types name it differently.
ATTENTION = ("self_attn.o_proj", "mixer.o_proj", "attention.o_proj", "attn.wo_a")
GATED_DELTA = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz")
MAMBA2 = ("mixer.in_proj", "mamba.in_proj")
LIGHTNING = ("self_attn.out_proj",)
EXPERT = ("gate_proj", "up_proj", "w1", "gate_up_proj")
MODULES: dict[WeightClass, tuple[str, ...]] = {
    "ffn": ("mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj", "mixer.up_proj", "feed_forward.gate_proj", "mlp.fc1"),
    "routed_experts": tuple(
        f"{block}.experts.{name}"
        for block in ("mlp", "block_sparse_moe", "mixer", "feed_forward", "moe")
        for name in (*(f"0.{part}" for part in EXPERT), "gate_up_proj")
    ),
    "shared_experts": (
        *("mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj", "mixer.shared_experts.up_proj"),
        *("feed_forward.shared_expert.gate_proj", "share_expert.gate_proj", "mlp.shared_experts.gate_up_proj"),
    ),
}


def attention_modules(attention: Attention) -> tuple[str, ...]:
    """The modules that stand for the projections of this kind of attention."""
    if isinstance(attention, GatedDelta):
        return GATED_DELTA
    if isinstance(attention, (Mamba, Mamba2)):
        return MAMBA2
    if isinstance(attention, Parallel):
        return (*ATTENTION, *MAMBA2)
    return LIGHTNING if isinstance(attention, Lightning) else ATTENTION


class Patterns:
    """Patterns of module names: exact, with wildcards, "re:" and a regular expression, or "Linear" for all modules.

    A pattern without a regular expression names a module by its whole name or any run of its components, and all that
    is inside: "mlp.gate" is not "mlp.gate_proj", and "layers.*.self_attn" holds "model.layers.3.self_attn.o_proj".
    """

    def __init__(self, patterns: Iterable[str], place: str) -> None:
        """Raises BadInput for an invalid regular expression."""
        found = sorted(set(patterns))
        self.every = "Linear" in found
        plain = {without_prefix(p) for p in found if not p.startswith("re:")}
        wild = sorted(p for p in plain if any(c in p for c in "*?["))
        self._exact = plain - set(wild)
        tests = [rf"(?:.*\.)?(?:{'|'.join(map(_glob, wild))})(?:\..*)?\Z"] if wild else []
        self._wild = [re.compile(test, re.DOTALL) for test in tests]
        self._regular = [_regular(pattern, place) for pattern in found if pattern.startswith("re:")]

    def match(self, name: str) -> bool:
        """Whether a pattern names this module, given without prefix; "Linear" apart."""
        if any(test.match(name) for test in self._wild):
            return True
        if self._regular and any(test.match(prefix + name) for prefix in PREFIXES for test in self._regular):
            return True
        words = name.split(".") if self._exact else []
        runs = (".".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
        return any(run in self._exact for run in runs)


def without_prefix(name: str) -> str:
    """The name of a module without what comes before the layers."""
    return next((name.removeprefix(prefix) for prefix in PREFIXES if prefix and name.startswith(prefix)), name)


def _glob(pattern: str) -> str:
    """A wildcard pattern as a regular expression."""
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".").replace(r"\[", "[").replace(r"\]", "]")


def _regular(pattern: str, place: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern[3:])
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput(place, pattern, f"not a regular expression: {error}") from None
