"""Weight formats: the bits per stored weight, scales included, and the precision of its matrix multiplication."""

import re
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from stageline.errors import BadInput

Precision = Literal["bf16", "fp8", "fp4"]

WeightClass = Literal[
    "embedding", "head", "norms", "attention", "attention_minor", "ffn", "routed_experts", "shared_experts", "latent",
    "router",
]  # fmt: skip


class WeightFormat(NamedTuple):
    """Bits per weight (exact), the precision of the matrix multiplication, and the blocks that ranks keep whole."""

    bits: Fraction
    precision: Precision
    block_out: int = 1  # outputs that share a scale, which ranks must not divide
    block_in: int = 1  # inputs that do


WEIGHT_FORMATS: dict[str, WeightFormat] = {
    "fp32": WeightFormat(Fraction(32), "bf16"),
    "bf16": WeightFormat(Fraction(16), "bf16"),
    "fp8": WeightFormat(Fraction(8), "fp8"),
    "fp8-static": WeightFormat(Fraction(8), "fp8"),  # activations too have a scale of the checkpoint's
    "fp8-block": WeightFormat(8 + Fraction(32, 128 * 128), "fp8", 128, 128),  # one fp32 scale per 128 x 128 block
    "mxfp8": WeightFormat(8 + Fraction(8, 32), "fp8"),  # one E8M0 scale per group of 32
    "int8": WeightFormat(Fraction(8), "bf16"),
    "int8-w8a8": WeightFormat(Fraction(8), "fp8"),  # 8-bit tensor cores multiply integers as fast as fp8
    "int4": WeightFormat(4 + Fraction(16, 32), "bf16", 1, 32),  # one bf16 scale per group of 32
    "int4-g128": WeightFormat(4 + Fraction(16, 128), "bf16", 1, 128),
    "mxfp4": WeightFormat(4 + Fraction(8, 32), "bf16"),  # one E8M0 scale per group of 32, multiplied as W4A16
    "mxfp4-openai": WeightFormat(4 + Fraction(8, 32), "bf16"),  # gpt-oss, in kernels of its own
    "mxfp4-w4a8": WeightFormat(4 + Fraction(8, 32), "fp8"),
    "nvfp4": WeightFormat(4 + Fraction(8, 16), "fp4", 1, 16),  # one FP8 scale per group of 16
    "nvfp4-w4a16": WeightFormat(4 + Fraction(8, 16), "bf16", 1, 16),
    "nf4": WeightFormat(4 + Fraction(32, 64), "bf16"),  # bitsandbytes: one fp32 scale per 64
    "nf4-double": WeightFormat(4 + Fraction(8, 64) + Fraction(32, 64 * 256), "bf16"),  # 8-bit scales, fp32 per 256
}

# Integers with a 16-bit scale per group of inputs ("g", or per output: "channel") and, with "-zp", a zero point of the
# weight's own width: "int4-g64-zp".
_INTEGER = re.compile(r"int([2348])-(?:g([1-9][0-9]{0,5})|channel)(-zp)?")
PATTERN_TEXT = "intBITS-gGROUP or intBITS-channel, either with -zp (zero points), BITS 2, 3, 4 or 8"


ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # of KV, states and activations

QUANTISABLE: tuple[WeightClass, ...] = ("attention", "ffn", "routed_experts", "shared_experts", "latent")


class WeightFormats(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The format of every class of weights. Embedding and head count on the model, the others on its layers."""

    embedding: str = "bf16"
    head: str = "bf16"
    norms: str = "bf16"
    attention: str = "bf16"  # projections
    attention_minor: str = "bf16"  # convolutions, decay and beta projections, biases
    ffn: str = "bf16"  # dense FFN
    routed_experts: str = "bf16"
    shared_experts: str = "bf16"
    latent: str = "bf16"  # projections into and out of the latent space of a MoE
    router: str = "bf16"

    def of(self, weight_class: WeightClass) -> WeightFormat:
        """The format of one class of weights."""
        return format_named(getattr(self, weight_class), weight_class)

    def check(self, place: str) -> None:
        """Refuse unknown formats. Raises BadInput."""
        for field in self.__struct_fields__:
            format_named(getattr(self, field), f"{place}.{field}")

    def with_linear(self, name: str) -> "WeightFormats":
        """All linear layers in another format; embedding, head, router and norms keep theirs."""
        return msgspec.structs.replace(self, **dict.fromkeys(QUANTISABLE, name))


@lru_cache(maxsize=256)
def _parsed(name: str) -> WeightFormat | None:
    if name in WEIGHT_FORMATS:
        return WEIGHT_FORMATS[name]
    found = _INTEGER.fullmatch(name)
    if not found:
        return None
    bits, group, zeros = int(found[1]), int(found[2] or 0), bool(found[3])
    extra = Fraction(16 + bits * zeros, group) if group else Fraction(0)
    return WeightFormat(bits + extra, "bf16", 1, group or 1)


def format_named(name: str, place: str) -> WeightFormat:
    """The format of this name. Raises BadInput for an unknown one."""
    found = _parsed(name)
    if found is None:
        close = get_close_matches(name, WEIGHT_FORMATS, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        known = f"{meant}use one of {', '.join(WEIGHT_FORMATS)}; or {PATTERN_TEXT}"
        raise BadInput(place, name, "not a weight format", known)
    return found


def weight_bytes(params: int, fmt: WeightFormat) -> int:
    """ceil(params x bits / 8), scales included."""
    return -(-params * fmt.bits.numerator // (fmt.bits.denominator * 8))
