"""What a serving engine makes of its --quantization, given the checkpoint: as vLLM and SGLang do it.

An engine quantises in flight by some names; the others only say how the checkpoint was quantised, and end the engine if
it was not. Sources: vLLM's docs (features/quantization: online, bnb, auto_awq, gptqmodel) and `get_quant_config` in its
model_loader/weight_utils.py, from which the error comes; the QUANTIZATION_CHOICES of SGLang's server_args.py and its
page on quantization. bitsandbytes in flight is NF4 with double quantisation (`quantize_4bit` in vLLM's
bitsandbytes_loader.py, and SGLang's loader after it).
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from stageline.errors import BadInput
from stageline.model.ffn import Moe
from stageline.model.formats import QUANTISABLE
from stageline.model.spec import ModelSpec

FLAG = "--quantization"
_WITH_FILE = ("awq", "gptq", "auto_", "moe_wna16", "modelopt")  # vLLM looks for a file beside the config
_EXPERTS_ONLY = frozenset({"experts_int8", "int8_per_channel_weight_only"})

_CHECKPOINTS: dict[str, tuple[str, ...]] = {  # names -> the quant_method of checkpoints that they load
    "awq": ("awq",),
    "awq_marlin": ("awq",),
    "gptq": ("gptq",),
    "gptq_marlin": ("gptq",),
    "moe_wna16": ("awq", "gptq"),
    "compressed-tensors": ("compressed-tensors",),
    "modelopt": ("modelopt", "modelopt_fp4"),
    "modelopt_fp4": ("modelopt", "modelopt_fp4"),
    "modelopt_mixed": ("modelopt",),
    "quark": ("quark",),
    "mxfp4": ("mxfp4",),
    "auto-round": ("auto-round",),
    "bitsandbytes": ("bitsandbytes",),
    "fp8": ("fp8",),
}
_VLLM_CHECKPOINTS = _CHECKPOINTS | {
    "auto_awq": ("awq",),
    "auto_gptq": ("gptq",),
    "fbgemm_fp8": ("fbgemm_fp8",),
    "gpt_oss_mxfp4": ("mxfp4",),
    "deepseek_v4_fp8": ("fp8",),
    "inc": ("auto-round",),
    "modelopt_mxfp8": ("modelopt",),
}
_SGLANG_CHECKPOINTS = _CHECKPOINTS | {
    "marlin": ("gptq", "awq"),
    "modelopt_fp8": ("modelopt",),
    "w8a8_int8": ("compressed-tensors",),
    "w8a8_fp8": ("compressed-tensors",),
}


class _Engine(NamedTuple):
    name: str
    checkpoints: Mapping[str, tuple[str, ...]]
    in_flight: Mapping[str, str]  # names -> the format that weights get as they are loaded
    not_modelled: tuple[str, ...]


_VLLM = _Engine(
    "vLLM",
    _VLLM_CHECKPOINTS,
    {
        "fp8": "fp8",
        "fp8_per_tensor": "fp8",
        "fp8_per_channel": "fp8",
        "fp8_per_block": "fp8-block",
        "ptpc_fp8": "fp8",
        "mxfp8": "mxfp8",
        "nvfp4_per_token": "nvfp4",
        "bitsandbytes": "nf4-double",
        "experts_int8": "int8-channel",
        "int8_per_channel_weight_only": "int8-channel",
    },
    (
        "online", "gguf", "torchao", "humming", "fp_quant", "aqlm", "hqq", "qqq", "rtn", "deepspeedfp", "tpu_int8",
        "ipex", "bitblas", "gptq_bitblas", "gptq_marlin_24", "marlin", "petit_nvfp4", "cpu_awq",
    ),
)  # fmt: skip
_SGLANG = _Engine(
    "SGLang",
    _SGLANG_CHECKPOINTS,
    {
        "fp8": "fp8",
        "w8a8_fp8": "fp8",
        "mxfp8": "mxfp8",
        "nvfp4_online": "nvfp4",
        "bitsandbytes": "nf4-double",
    },
    ("gguf", "petit_nvfp4", "qoq", "w4afp8", "auto-round-int8", "modelslim", "mxfp_w4a8"),
)


def as_loaded(spec: ModelSpec, name: str, serving_engine: str | None) -> ModelSpec:
    """The model as an engine loads it with this --quantization. Raises BadInput where the engine would end."""
    engine = _SGLANG if serving_engine == "sglang" else _VLLM
    if name not in engine.checkpoints and name not in engine.in_flight:
        known = ", ".join(sorted({*engine.checkpoints, *engine.in_flight}))
        what = f"{engine.name} has it, but" if name in engine.not_modelled else f"{engine.name} has no such method, or"
        raise BadInput(FLAG, name, f"{what} it is not modelled", f"known: {known}")
    if _quantised(spec):
        if spec.quant_method and spec.quant_method not in engine.checkpoints.get(name, ()):
            reason = f"the checkpoint of {spec.name} is quantised otherwise: quant_method {spec.quant_method}"
            raise BadInput(FLAG, name, f"{reason}, and {engine.name} ends with an error", f"leave {FLAG} out")
        return spec
    if name not in engine.in_flight:
        raise BadInput(FLAG, name, _not_quantised(spec, engine, name), _ways_out(engine))
    found = engine.in_flight[name]
    return _with_experts(spec, name, found) if name in _EXPERTS_ONLY else spec.requantised(found)


def name_in_flight(serving_engine: str, weights: str) -> str | None:
    """The --quantization by which an engine makes all linear weights of that format as it loads; None: it can't."""
    made = (_SGLANG if serving_engine == "sglang" else _VLLM).in_flight
    return next((name for name, found in made.items() if found == weights and name not in _EXPERTS_ONLY), None)


def _quantised(spec: ModelSpec) -> bool:
    """Whether a linear layer of the checkpoint is stored in fewer than 16 bits."""
    formats = {getattr(layer.formats, name) for layer in set(spec.layers) for name in QUANTISABLE}
    return bool(spec.quant_method) or not formats <= {"bf16", "fp32"}


def _not_quantised(spec: ModelSpec, engine: _Engine, name: str) -> str:
    sought = engine is _VLLM and name.startswith(_WITH_FILE)
    said = f' ("Cannot find the config file for {name}")' if sought else ""
    return f"the checkpoint of {spec.name} is not quantised, and {engine.name} ends with an error{said}"


def _ways_out(engine: _Engine) -> str:
    names = ", ".join(engine.in_flight)
    return (
        f"give a checkpoint that was quantised so (its directory or config.json), a name by which {engine.name} "
        f"quantises as it loads ({names}), or plan the format with --weights"
    )


def _with_experts(spec: ModelSpec, name: str, weights: str) -> ModelSpec:
    """The model with its routed experts alone in another format. Raises BadInput if it has none."""
    if not any(isinstance(layer.ffn, Moe) for layer in set(spec.layers)):
        raise BadInput(FLAG, name, f"it quantises experts, and {spec.name} has none", "leave it out")
    layers = tuple(
        msgspec.structs.replace(x, formats=msgspec.structs.replace(x.formats, routed_experts=weights))
        for x in spec.layers
    )
    return msgspec.structs.replace(spec, layers=layers)
