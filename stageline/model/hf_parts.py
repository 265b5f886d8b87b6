"""The Hugging Face model types that can be imported, and how each is read.

Most types differ in a few traits of one transformer; the others have a reader of their own.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from stageline.model.hf_fields import ConfigFields
from stageline.model.hf_hybrid import (
    falcon_h1,
    gated_delta,
    granite_hybrid,
    jamba,
    kimi_linear,
    minimax,
    nemotron_h,
    nemotron_nas,
)
from stageline.model.hf_latent import deepseek_v4, mla_moe
from stageline.model.hf_layers import Parts, Traits
from stageline.model.hf_special import (
    biased_norms,
    gemma3n,
    gemma4,
    hunyuan_moe,
    llama4,
    mimo_v2,
    minimax_m2,
    starcoder2,
    step3,
    transformer,
)

Reader = Callable[[ConfigFields, Traits], Parts]


class Family(NamedTuple):
    """How a model type is read."""

    reader: Reader
    traits: Traits = Traits()
    defaults: Mapping[str, int] = MappingProxyType({})  # of sizes that published configs leave out


_QWEN2 = Traits(always_qkv_bias=True, o_bias=False, window=False)
_QWEN3 = Traits(qk_norm=True, window=False)
_QWEN_NEXT = Traits(qk_norm=True, output_gate=True, shared_gate=True)
_GEMMA = Traits(extra_norms=2, tied=True)
_GEMMA3_SIZES = MappingProxyType(
    {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208}
)
_OLMO = Traits(qk_norm_all_heads=True, pattern=4)
_EXPERTS = Traits(experts=True)
_LN = Traits(extra_norms=2)
_COHERE = Traits(extra_norms=-1, tied=True)  # one norm for attention and FFN, which work side by side

FAMILIES: dict[str, Family] = {
    "apertus": Family(transformer, Traits(qk_norm=True, gated=False)),
    "arcee": Family(transformer, Traits(gated=False)),
    "bailing_moe": Family(transformer, _EXPERTS),
    "bailing_moe_v2": Family(transformer, _EXPERTS),
    "cohere": Family(transformer, _COHERE._replace(qk_norm_all_heads=True), MappingProxyType({"use_qk_norm": False})),
    "cohere2": Family(transformer, _COHERE._replace(pattern=4)),
    "deepseek_v2": Family(mla_moe, _EXPERTS),
    "deepseek_v3": Family(mla_moe, _EXPERTS),
    "deepseek_v32": Family(mla_moe, _EXPERTS),
    "deepseek_v4": Family(deepseek_v4),
    "dots1": Family(transformer, Traits(qk_norm=True, window=False, experts=True)),
    "ernie4_5": Family(transformer, Traits(tied=True)),
    "ernie4_5_moe": Family(transformer, Traits(tied=True, experts=True)),
    "exaone4": Family(transformer, Traits(qk_norm=True, pattern=4)),
    "falcon_h1": Family(falcon_h1),
    "gemma": Family(transformer, Traits(tied=True)),
    "gemma2": Family(transformer, _GEMMA._replace(pattern=2)),
    "gemma3_text": Family(transformer, _GEMMA._replace(qk_norm=True, pattern=6), _GEMMA3_SIZES),
    "gemma3n_text": Family(gemma3n, _GEMMA._replace(qk_norm=True)),
    "gemma4_text": Family(gemma4, Traits(qk_norm=True, tied=True)),
    "glm": Family(transformer, Traits(qkv_bias=True, o_bias=False)),
    "glm4": Family(transformer, Traits(qkv_bias=True, o_bias=False, extra_norms=2)),
    "glm4_moe": Family(transformer, Traits(o_bias=False, experts=True)),
    "glm4v_moe_text": Family(transformer, Traits(qkv_bias=True, o_bias=False, experts=True)),
    "glm4_moe_lite": Family(mla_moe, _EXPERTS),
    "glm_moe_dsa": Family(mla_moe, _EXPERTS),
    "gpt_oss": Family(transformer, Traits(qkv_bias=True, sinks=True, bias=True, experts=True)),
    "granite": Family(transformer, Traits(tied=True)),
    "granitemoe": Family(transformer, Traits(tied=True, experts=True)),
    "granitemoehybrid": Family(granite_hybrid, Traits(tied=True)),
    "hunyuan_v1_dense": Family(transformer, Traits(qk_norm=True)),
    "hunyuan_v1_moe": Family(hunyuan_moe, Traits(qk_norm=True, experts=True)),
    "internlm2": Family(transformer),
    "internlm3": Family(transformer),
    "jamba": Family(jamba, defaults=MappingProxyType({"num_experts": 16, "num_experts_per_tok": 2})),
    "kimi_k2": Family(mla_moe, _EXPERTS),
    "kimi_linear": Family(kimi_linear, _EXPERTS),
    "llama": Family(transformer),
    "llama4_text": Family(llama4),
    "mimo": Family(transformer, _QWEN2),
    "mimo_v2_flash": Family(mimo_v2, Traits(o_bias=False, experts=True)),
    "minimax": Family(minimax, _EXPERTS),
    "minimax_m1": Family(minimax, _EXPERTS),
    "minimax_m2": Family(minimax_m2, Traits(qk_norm_all_heads=True, experts=True)),
    "minimax_text_01": Family(minimax, _EXPERTS),
    "ministral": Family(transformer),
    "ministral3": Family(transformer),
    "mistral": Family(transformer),
    "mistral4": Family(mla_moe, _EXPERTS),
    "mixtral": Family(transformer, _EXPERTS),
    "nemotron": Family(biased_norms, _LN._replace(gated=False)),
    "nemotron-nas": Family(nemotron_nas),
    "nemotron_h": Family(nemotron_h, Traits(gated=False)),
    "olmo2": Family(transformer, _OLMO),
    "olmo3": Family(transformer, _OLMO),
    "olmoe": Family(transformer, _OLMO._replace(experts=True)),
    "phi": Family(biased_norms, Traits(qkv_bias=True, gated=False, bias=True)),
    "phi3": Family(transformer),
    "phimoe": Family(biased_norms, _LN._replace(experts=True)),
    "qwen2": Family(transformer, _QWEN2),
    "qwen2_5_vl_text": Family(transformer, _QWEN2),
    "qwen2_moe": Family(
        transformer, _QWEN2._replace(always_qkv_bias=False, qkv_bias=True, shared_gate=True, experts=True)
    ),
    "qwen2_vl_text": Family(transformer, _QWEN2),
    "qwen3": Family(transformer, _QWEN3),
    "qwen3_5_moe_text": Family(gated_delta, _QWEN_NEXT._replace(experts=True)),
    "qwen3_5_text": Family(gated_delta, _QWEN_NEXT),
    "qwen3_moe": Family(transformer, _QWEN3._replace(experts=True)),
    "qwen3_next": Family(gated_delta, _QWEN_NEXT._replace(experts=True)),
    "qwen3_vl_moe_text": Family(transformer, _QWEN3._replace(experts=True)),
    "qwen3_vl_text": Family(transformer, _QWEN3),
    "seed_oss": Family(transformer, Traits(qkv_bias=True, o_bias=False)),
    "smollm3": Family(transformer, Traits(tied=True, window=False)),
    "starcoder2": Family(
        starcoder2,
        _LN._replace(qkv_bias=True, gated=False, bias=True, tied=True),
        MappingProxyType({"lm_head_bias": False}),
    ),
    "step3p5": Family(step3, Traits(qk_norm=True, head_gate=True)),
    "step3p7": Family(step3, Traits(qk_norm=True, head_gate=True)),
}
ALIASES = {"deci": "nemotron-nas", "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
BY_ARCHITECTURE = {"MiniMaxM2ForCausalLM": "minimax_m2"}  # where model_type is that of another architecture
