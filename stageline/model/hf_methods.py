"""Reads quantization_config and hf_quant_config.json, by quantisation method.

A method or format that is not modelled is refused, because its weights would otherwise count as BF16.
"""

import re
from collections.abc import Callable

from stageline.errors import BadInput
from stageline.model.formats import format_named
from stageline.model.hf_fields import ConfigFields
from stageline.model.hf_modules import Patterns, without_prefix
from stageline.model.hf_quant import Quantisation, Rule

BY_ALGORITHM = {
    "FP8": "fp8-static",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8-block",
    "FP8_PB_REAL": "fp8-block",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4-w4a16",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4-w4a8",
    "W4A16_AWQ": "int4-g128",
    "INT4_AWQ": "int4-g128",
    "W4A8_AWQ": "int4-g128",
    "INT8_SQ": "int8-w8a8",
    "W8A8_SQ_PER_CHANNEL": "int8-w8a8",
}
MIXED = "MIXED_PRECISION"
LM_HEAD = "lm_head"
WHOLE_BITS = 16  # not quantised
_NOTES = ("producer", "format", "quantization_status", "global_compression_ratio", "version", "quant_algo", "fmt")


def quantisation(raw: object, place: str, side: ConfigFields | None = None) -> Quantisation:
    """Read a quantization_config, and hf_quant_config.json (`side`); without either nothing is quantised.

    If both describe the weights, quantization_config counts; the KV cache's type may come from either. Raises BadInput
    for a method that is not modelled.
    """
    beside = _beside(side) if side else Quantisation()
    if raw is None or raw == {}:
        return beside
    return _section(ConfigFields(raw, place), beside)


def _section(f: ConfigFields, beside: Quantisation) -> Quantisation:
    """A quantization_config by its method. Raises BadInput."""
    implied = {"quant_algo": "modelopt", "load_in_4bit": "bitsandbytes", "load_in_8bit": "bitsandbytes"}
    method = f.text("quant_method") or next((kind for name, kind in implied.items() if f.has(name)), None)
    bare = method == "quark" and not f.has("global_quant_config")
    if method is None or method.lower() not in METHODS or bare:
        reason = "this method is not modelled, and its weights are not BF16"
        raise BadInput(f.at("quant_method"), str(method), reason, f"known: {', '.join(METHODS)}")
    f.unused(*_NOTES)
    found = METHODS[method.lower()](f)
    f.finish()
    return found._replace(kv_fp8=found.kv_fp8 or beside.kv_fp8, method=method.lower())


def _everything(f: ConfigFields, name: str, ignored: list[str], place: str) -> Quantisation:
    """All linear layers in one format, except these."""
    format_named(name, f.place)
    return Quantisation((Rule(Patterns(("Linear",), f.place), name),), {}, Patterns(ignored, f.at(place)))


def _fp8(f: ConfigFields) -> Quantisation:
    """FP8, with one scale per tensor or channel, or per block; activations have scales of their own if static."""
    block = f.integers("weight_block_size")
    if block not in ([], [128, 128]):
        raise BadInput(f.at("weight_block_size"), str(block), "only blocks of 128 x 128 are modelled")
    ignored = [LM_HEAD, *f.words("modules_to_not_convert"), *f.words("ignored_layers")]
    static = f.text("activation_scheme") == "static"
    name = "fp8-block" if block else "fp8-static" if static else "fp8"
    return _everything(f, name, ignored, "modules_to_not_convert")


def _mxfp4(f: ConfigFields) -> Quantisation:
    """The experts in MXFP4: gpt-oss, whose method this is."""
    ignored = Patterns((LM_HEAD, *f.words("modules_to_not_convert")), f.at("modules_to_not_convert"))
    return Quantisation((Rule(Patterns(("re:.*experts",), f.place), "mxfp4-openai"),), {}, ignored)


def _integer_format(bits: int, group: int, zeros: bool) -> str:
    """The name of a format of integers with a 16-bit scale per group; a group of 0 is a whole column."""
    if not zeros and (bits, group) in ((8, 0), (4, 32)):
        return f"int{bits}"
    return f"int{bits}-{f'g{group}' if group else 'channel'}{'-zp' * zeros}"


def _group_size(f: ConfigFields, default: int) -> int:
    """group_size; -1: one group per column."""
    if f.get("group_size") == -1:
        return 0
    return f.integer("group_size", "q_group_size", default=default)


def _awq(f: ConfigFields) -> Quantisation:
    """AWQ: integers, a scale and usually a zero point per group."""
    bits = f.positive("bits", "w_bit", default=4)
    name = _integer_format(bits, _group_size(f, 128), f.flag("zero_point", default=True))
    f.unused("modules_to_not_convert", "version", "backend", "do_fuse", "fuse_max_seq_len", "exllama_config")
    return _everything(f, name, [LM_HEAD, *f.words("modules_to_not_convert")], "modules_to_not_convert")


def _gptq(f: ConfigFields) -> Quantisation:
    """GPTQ: integers, a scale and a zero point per group; symmetric checkpoints store zero points too.

    `dynamic` excludes modules ("-:regex") or gives them bits and a group of their own ("+:regex"); so does AutoRound's
    `extra_config`, by name.
    """
    bits, size = f.positive("bits", default=4), _group_size(f, 128)
    f.unused("static_groups", "modules_in_block_to_quantize", "meta", "checkpoint_format", "desc_act", "sym", "method")
    f.unused("block_name_to_quantize", "dataset", "model_seqlen", "use_cuda_fp16", "cache_block_outputs", "pack_dtype")
    ignored = [] if f.flag("lm_head") else [LM_HEAD]
    rules = []
    dynamic = f.get("dynamic") or {}
    for pattern, change in ConfigFields(dynamic, f.at("dynamic")).raw.items():
        regex = "re:" + pattern.removeprefix("+:").removeprefix("-:")
        if pattern.startswith("-:"):
            ignored.append(regex)
            continue
        inner = ConfigFields(change or {}, f"{f.at('dynamic')}.{pattern}")
        own = _integer_format(inner.positive("bits", default=bits), _group_size(inner, size), True)
        format_named(own, inner.place)
        rules.append(Rule(Patterns((regex,), f.at("dynamic")), own))
    for name, change in ConfigFields(f.get("extra_config") or {}, f.at("extra_config")).raw.items():
        inner = ConfigFields(change or {}, f"{f.at('extra_config')}.{name}")
        own_bits, literal = inner.positive("bits", default=bits), re.fullmatch(r"[\w.]+", name)
        if own_bits >= WHOLE_BITS:
            ignored.append(name if literal else f"re:{name}")
            continue
        own = _integer_format(own_bits, _group_size(inner, size), True)
        format_named(own, inner.place)
        rules.append(Rule(Patterns((name if literal else f"re:{name}",), f.at("extra_config")), own))
    found = _everything(f, _integer_format(bits, size, True), ignored + f.words("modules_to_not_convert"), "dynamic")
    return found._replace(rules=(*rules, *found.rules))


def _bitsandbytes(f: ConfigFields) -> Quantisation:
    """bitsandbytes: 8 bits per weight, or 4 with a scale per 64, itself in 8 bits if `bnb_4bit_use_double_quant`."""
    eight, four = f.flag("load_in_8bit"), f.flag("load_in_4bit")
    f.unused("_load_in_8bit", "_load_in_4bit", "llm_int8_has_fp16_weight", "llm_int8_threshold")
    if eight == four:
        raise BadInput(f.at("load_in_4bit"), four, "expected either load_in_4bit or load_in_8bit")
    kind = f.text("bnb_4bit_quant_type") or "fp4"
    if kind not in ("nf4", "fp4"):
        raise BadInput(f.at("bnb_4bit_quant_type"), kind, "this type is not modelled", "known: nf4, fp4")
    double = f.flag("bnb_4bit_use_double_quant")
    name = "int8" if eight else "nf4-double" if double else "nf4"
    return _everything(f, name, [LM_HEAD, *f.words("llm_int8_skip_modules")], "llm_int8_skip_modules")


def _kv_scheme(f: ConfigFields) -> bool:
    """Whether the KV cache is fp8. Raises BadInput for another format."""
    if f.get("kv_cache_scheme") is None:
        return False
    scheme = f.inner("kv_cache_scheme")
    bits, kind = scheme.integer("num_bits", default=8), scheme.text("type") or "float"
    if (bits, kind) != (8, "float"):
        raise BadInput(scheme.place, f"{kind} {bits} bits", "this KV cache is not modelled", "known: float 8 bits")
    return True


def _kv_algorithm(f: ConfigFields) -> bool:
    algorithm = f.text("kv_cache_quant_algo")
    if algorithm not in (None, "", "FP8"):
        raise BadInput(f.at("kv_cache_quant_algo"), algorithm, "this KV cache is not modelled", "known: FP8")
    return algorithm == "FP8"


def _groups(f: ConfigFields) -> tuple[Rule, ...]:
    raw = f.get("config_groups")
    if not isinstance(raw, dict):
        raise BadInput(f.at("config_groups"), None, "expected an object of groups")
    found = {name: ConfigFields(group, f"{f.at('config_groups')}.{name}") for name, group in raw.items()}
    return tuple(_rule(group) for group in found.values() if group.get("weights") is not None)


def _compressed_tensors(f: ConfigFields) -> Quantisation:
    """Groups of targets, each with its format, and an ignore list."""
    sparsity = f.inner("sparsity_config") if f.get("sparsity_config") else ConfigFields({}, f.place)
    if sparsity.text("format") not in (None, "dense"):
        raise BadInput(sparsity.at("format"), sparsity.text("format"), "sparse weights are not modelled")
    f.unused("transform_config")
    return Quantisation(_groups(f), {}, Patterns(f.words("ignore"), f.at("ignore")), _kv_scheme(f))


def _rule(group: ConfigFields) -> Rule:
    weights, targets = group.inner("weights"), Patterns(group.words("targets"), group.at("targets"))
    bits, kind = weights.positive("num_bits"), weights.text("type") or "int"
    size = 0 if weights.get("group_size") == -1 else weights.integer("group_size", default=0)
    block = weights.integers("block_structure")
    inputs = group.inner("input_activations") if group.get("input_activations") else ConfigFields({}, group.place)
    input_bits = inputs.integer("num_bits", default=16)
    place, found = weights.place, f"{kind} {bits} bits, groups of {size}"
    if block not in ([], [128, 128]):
        raise BadInput(place, f"blocks of {block}", "only blocks of 128 x 128 are modelled")
    if kind == "int" and bits in (2, 3, 4, 8):
        if bits == 8 and size == 0 and input_bits == 8:
            return Rule(targets, "int8-w8a8")
        symmetric = weights.flag("symmetric", default=True)
        return Rule(targets, _integer_format(bits, size, not symmetric and size > 0))
    formats = {
        (8, 0): "fp8-block" if block else "fp8-static" if inputs.get("dynamic") is False else "fp8",
        (8, 32): "mxfp8",
        (4, 16): "nvfp4" if input_bits < 16 else "nvfp4-w4a16",
        (4, 32): "mxfp4-w4a8" if input_bits == 8 else "mxfp4",
    }
    if kind != "float" or (bits, size) not in formats:
        raise BadInput(place, found, "this weight format is not modelled")
    return Rule(targets, formats[bits, size])


def _modelopt(f: ConfigFields) -> Quantisation:
    """ModelOpt in config.json: an algorithm, groups, or a format by module."""
    algorithm = f.text("quant_algo")
    names = "ignore" if f.has("ignore") else "exclude_modules"
    ignore = Patterns(f.words(names), f.at(names))
    f.unused("ignore", "exclude_modules")
    kv_fp8 = _kv_scheme(f) or _kv_algorithm(f)
    if f.has("quantized_layers"):
        f.unused("config_groups")
        return Quantisation((), _by_name(f), ignore, kv_fp8)
    if f.has("config_groups"):
        return Quantisation(_groups(f), {}, ignore, kv_fp8)
    name = _algorithm(algorithm, _group_size(f, 0), f.at("quant_algo"))
    return Quantisation((Rule(Patterns(("Linear",), f.place), name),), {}, ignore, kv_fp8)


def _beside(side: ConfigFields) -> Quantisation:
    """ModelOpt's hf_quant_config.json, or a section in a file of its own, with its method."""
    if side.has("quant_method"):
        return _section(side, Quantisation())
    side.unused("producer")
    f = side.inner("quantization")
    f.unused("has_zero_point", "pre_quant_scale", "quant_method", "smoothquant_val")
    if f.text("quant_algo") is None and not f.has("quantized_layers"):
        return Quantisation(kv_fp8=_kv_algorithm(f))
    found = _modelopt(f)
    f.finish()
    return found._replace(method="modelopt")


def _algorithm(algorithm: str | None, size: int, place: str) -> str:
    if algorithm is None or algorithm not in BY_ALGORITHM:
        known = f"known: {', '.join(BY_ALGORITHM)}, {MIXED} with quantized_layers"
        raise BadInput(place, str(algorithm), "this algorithm is not modelled", known)
    name = BY_ALGORITHM[algorithm]
    return f"int4-g{size}" if name == "int4-g128" and size else name


def _by_name(f: ConfigFields) -> dict[str, str]:
    """`quantized_layers`: the format of each module that it names, and of all that is inside."""
    found = {}
    for name, value in f.inner("quantized_layers").raw.items():
        inner = ConfigFields(value, f"{f.at('quantized_layers')}.{name}")
        found[without_prefix(name)] = _algorithm(inner.text("quant_algo"), _group_size(inner, 0), inner.place)
    return found


def _quark(f: ConfigFields) -> Quantisation:
    """AMD Quark: one configuration for all layers but those that `exclude` names."""
    f.unused("export", "algo_config", "softmax_quant_spec", "quant_mode", "log_severity_level", "kv_cache_post_rope")
    for name in ("layer_quant_config", "layer_type_quant_config"):
        if f.get(name):
            raise BadInput(f.at(name), "an object", "formats by layer are not modelled for this method")
    everywhere = f.inner("global_quant_config")
    weight = everywhere.inner("weight")
    inputs = everywhere.inner("input_tensors") if everywhere.get("input_tensors") else ConfigFields({}, weight.place)
    kind, size = weight.text("dtype"), _group_size(weight, 0)
    known = {("fp8_e4m3", 0): "fp8", ("int8", 0): "int8-w8a8", ("fp4", 32): "mxfp4"}
    known |= {("uint4", size): _integer_format(4, size, True), ("int4", size): _integer_format(4, size, False)}
    if kind == "fp4" and inputs.text("dtype") == "fp8_e4m3":
        known["fp4", 32] = "mxfp4-w4a8"
    if (kind, size) not in known:
        raise BadInput(weight.at("dtype"), f"{kind}, groups of {size}", "this weight format is not modelled")
    found = _everything(f, known[str(kind), size], f.words("exclude"), "exclude")
    kv = f.inner("kv_cache_quant_config") if f.get("kv_cache_quant_config") else None
    return found._replace(kv_fp8=kv is not None and "fp8" in str(kv.raw))


METHODS: dict[str, Callable[[ConfigFields], Quantisation]] = {
    "auto-round": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm_fp8": _fp8,
    "fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "mxfp4": _mxfp4,
    "quark": _quark,
}
