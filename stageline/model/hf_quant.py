"""A quantised checkpoint: which weights are stored in which format.

Modules are named as in the checkpoint. The ignore list wins; modules that no rule names are not quantised.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from stageline.model.attention import Attention
from stageline.model.attention_kind import NoAttention
from stageline.model.ffn import Dense, Ffn, Moe
from stageline.model.formats import WeightClass, WeightFormats
from stageline.model.hf_modules import MODULES, Patterns, attention_modules

OF_EXPERTS = {"fp8-static": "fp8", "mxfp4-openai": "mxfp4"}  # kernels of their own; other weights share the plain ones


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
    method: str = ""  # the config's quant_method; "": weights are not quantised

    def format_of(self, modules: Iterable[str], default: str) -> str:
        """The weight format of a module, of which these are the names that model types give it.

        One such as "layers.3.self_attn.o_proj"; `default` if it is not quantised.
        """
        names = list(modules)
        if self.ignore and (self.ignore.every or any(map(self.ignore.match, names))):
            return default
        if self.by_name:
            return next((found for name in names if (found := self._named(name))), default)
        for rule in self.rules:
            if any(map(rule.targets.match, names)):
                return rule.format
        return next((rule.format for rule in self.rules if rule.targets.every), default)

    def _named(self, name: str) -> str | None:
        """The format that the module, or the innermost one around it, has by name."""
        while name:
            if name in self.by_name:
                return self.by_name[name]
            name = name.rpartition(".")[0]
        return None

    def layer(self, index: int, attention: Attention, ffn: Ffn, default: WeightFormats) -> WeightFormats:
        """The weight formats of one layer. Routers, norms, convolutions and small projections are never quantised.

        The latent projections of a MoE stay in BF16 too: Kimi K3's ignore list does not name them, but the size of its
        checkpoint shows it.
        """
        modules: dict[WeightClass, tuple[str, ...]] = {}
        if not isinstance(attention, NoAttention):
            modules["attention"] = attention_modules(attention)
        if isinstance(ffn, Moe):
            modules |= {name: MODULES[name] for name in ("routed_experts", "shared_experts")}
        elif isinstance(ffn, Dense):
            modules["ffn"] = MODULES["ffn"]
        base = f"layers.{index}."
        found = {
            name: self.format_of([base + module for module in names], getattr(default, name))
            for name, names in modules.items()
        }
        plain = {name: OF_EXPERTS.get(found[name], found[name]) for name in found if name != "routed_experts"}
        return msgspec.structs.replace(default, **(found | plain))
