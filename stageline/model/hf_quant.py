"""Reads quantization_config: which weights are stored in which format.

Supported methods: compressed-tensors and modelopt (groups with targets, ignore lists, per-layer lists) and fp8, also in
blocks. Modules are named as in the checkpoint. The ignore list wins; modules that no group targets are not quantised.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from stageline.errors import BadInput
from stageline.model.attention import Attention, GatedDelta
from stageline.model.ffn import Ffn, Moe
from stageline.model.formats import WeightFormats
from stageline.model.hf_fields import ConfigFields

PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
KNOWN = frozenset(
    {
        "config_groups",
        "ignore",
        "kv_cache_scheme",
        "quant_method",
        "quantization_status",
        "format",
        "global_compression_ratio",
        "producer",
        "quant_algo",
        "quantized_layers",
        "fmt",
        "weight_block_size",
        "activation_scheme",
        "modules_to_not_convert",
    }
)
BY_ALGORITHM = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4-w4a16"}


class Patterns:
    """Patterns of module names: exact, with wildcards, "re:" and a regular expression, or "Linear" for all modules."""

    def __init__(self, patterns: Iterable[str], place: str) -> None:
        """Raises BadInput for an invalid regular expression."""
        self._exact = frozenset(patterns)
        wild = [p for p in self._exact if not p.startswith("re:") and any(c in p for c in "*?[")]
        self._tests = [re.compile("|".join(map(translate, sorted(wild))))] if wild else []
        for pattern in sorted(self._exact):
            if pattern.startswith("re:"):
                self._tests.append(_regular(pattern, place))

    def match(self, name: str) -> bool:
        """Whether a pattern matches this module."""
        return name in self._exact or "Linear" in self._exact or any(test.match(name) for test in self._tests)


def _regular(pattern: str, place: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern[3:])
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput(place, pattern, f"not a regular expression: {error}") from None


class Rule(NamedTuple):
    """Modules that match `targets` are stored in this format."""

    targets: Patterns
    format: str


class Quantisation(NamedTuple):
    """A parsed quantization_config."""

    rules: tuple[Rule, ...] = ()
    by_name: Mapping[str, str] = MappingProxyType({})
    ignore: "Patterns | None" = None
    kv_fp8: bool = False

    def format_of(self, module: str, default: str) -> str:
        """The weight format of a module such as "layers.3.self_attn.o_proj"; `default` if it is not quantised."""
        names = [prefix + module for prefix in PREFIXES]
        if self.ignore and any(map(self.ignore.match, names)):
            return default
        if self.by_name:
            return next((self.by_name[name] for name in names if name in self.by_name), default)
        for rule in self.rules:
            if any(map(rule.targets.match, names)):
                return rule.format
        return default

    def layer(self, index: int, attention: Attention, ffn: Ffn, default: WeightFormats) -> WeightFormats:
        """The weight formats of one layer. Routers, norms, convolutions and small projections are never quantised.

        The latent projections of a MoE stay in BF16 too: Kimi K3's ignore list does not name them, but the size of its
        checkpoint shows it.
        """
        base = f"layers.{index}."
        inner = "linear_attn.in_proj_qkv" if isinstance(attention, GatedDelta) else "self_attn.o_proj"
        found = {"attention": self.format_of(base + inner, default.attention)}
        if isinstance(ffn, Moe):
            found["routed_experts"] = self.format_of(base + "mlp.experts.0.gate_proj", default.routed_experts)
            found["shared_experts"] = self.format_of(base + "mlp.shared_experts.gate_proj", default.shared_experts)
        else:
            found["ffn"] = self.format_of(base + "mlp.gate_proj", default.ffn)
        return msgspec.structs.replace(default, **found)


def quantisation(raw: object, place: str) -> Quantisation:
    """Read a quantization_config; None: nothing is quantised. Raises BadInput for a method that is not supported."""
    if raw is None:
        return Quantisation()
    f = ConfigFields(raw, place)
    f.finish(KNOWN)
    method = f.text("quant_method")
    if method == "fp8":
        block = f.integers("weight_block_size")
        if block not in ([], [128, 128]):
            raise BadInput(f.at("weight_block_size"), str(block), "only blocks of 128 x 128 are modelled")
        ignore = Patterns(("*lm_head", *f.words("modules_to_not_convert")), f.at("modules_to_not_convert"))
        everything = Rule(Patterns(("Linear",), place), "fp8-block" if block else "fp8")
        return Quantisation((everything,), {}, ignore)
    if method not in ("compressed-tensors", "modelopt"):
        raise BadInput(
            f.at("quant_method"), method, "this method is not supported", "known: compressed-tensors, modelopt, fp8"
        )
    groups = f.get("config_groups")
    if not isinstance(groups, dict):
        raise BadInput(f.at("config_groups"), None, "expected an object of groups")
    rules = tuple(_rule(ConfigFields(group, f"{f.at('config_groups')}.{name}")) for name, group in groups.items())
    scheme = f.get("kv_cache_scheme")
    return Quantisation(rules, _by_name(f), Patterns(f.words("ignore"), f.at("ignore")), scheme is not None)


def _rule(group: ConfigFields) -> Rule:
    weights, targets = group.inner("weights"), Patterns(group.words("targets"), group.at("targets"))
    bits, size = weights.integer("num_bits"), weights.integer("group_size", default=0)
    key = (weights.text("type"), bits, size)
    if key == ("float", 4, 16) and group.get("input_activations") is None:
        return Rule(targets, "nvfp4-w4a16")
    formats = {
        ("float", 4, 32): "mxfp4",
        ("float", 4, 16): "nvfp4",
        ("int", 4, 32): "int4",
        ("int", 4, 128): "int4-g128",
        ("float", 8, 0): "fp8",
        ("int", 8, 0): "int8",
    }
    if key not in formats:
        raise BadInput(weights.place, f"{key[0]} {bits} bits, groups of {size}", "this weight format is not modelled")
    return Rule(targets, formats[key])


def _by_name(f: ConfigFields) -> dict[str, str]:
    """modelopt's `quantized_layers`: the format of each module that it names."""
    raw = f.get("quantized_layers")
    if raw is None:
        return {}
    found = {}
    for name, value in ConfigFields(raw, f.at("quantized_layers")).raw.items():
        algorithm = ConfigFields(value, f"{f.at('quantized_layers')}.{name}").text("quant_algo")
        if algorithm is None or algorithm not in BY_ALGORITHM:
            raise BadInput(f"{f.at('quantized_layers')}.{name}", str(algorithm), "this algorithm is not modelled")
        found[name] = BY_ALGORITHM[algorithm]
    return found
