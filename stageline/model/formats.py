"""Weight formats: the bits per stored weight, scales included, and the precision of its matrix multiplication."""

from fractions import Fraction
from typing import Literal, NamedTuple

import msgspec

from stageline.errors import BadInput

Precision = Literal["bf16", "fp8", "fp4"]

WeightClass = Literal[
    "embedding", "head", "norms", "attention", "attention_minor", "ffn", "routed_experts", "shared_experts", "latent",
    "router",
]  # fmt: skip


class WeightFormat(NamedTuple):
    """Bits per weight (exact) and the precision of the matrix multiplication."""

    bits: Fraction
    precision: Precision


WEIGHT_FORMATS: dict[str, WeightFormat] = {
    "fp32": WeightFormat(Fraction(32), "bf16"),
    "bf16": WeightFormat(Fraction(16), "bf16"),
    "fp8": WeightFormat(Fraction(8), "fp8"),
    "fp8-block": WeightFormat(8 + Fraction(32, 128 * 128), "fp8"),  # one fp32 scale per 128 x 128 block
    "int8": WeightFormat(Fraction(8), "bf16"),
    "int4": WeightFormat(4 + Fraction(16, 32), "bf16"),  # one bf16 scale per group of 32
    "int4-g128": WeightFormat(4 + Fraction(16, 128), "bf16"),
    "mxfp4": WeightFormat(4 + Fraction(8, 32), "bf16"),  # one E8M0 scale per group of 32, multiplied as W4A16
    "nvfp4": WeightFormat(4 + Fraction(8, 16), "fp4"),  # one FP8 scale per group of 16
    "nvfp4-w4a16": WeightFormat(4 + Fraction(8, 16), "bf16"),
}

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
        name: str = getattr(self, weight_class)
        return WEIGHT_FORMATS[name]

    def check(self, place: str) -> None:
        """Refuse unknown formats. Raises BadInput."""
        for field in self.__struct_fields__:
            format_named(getattr(self, field), f"{place}.{field}")

    def with_linear(self, name: str) -> "WeightFormats":
        """All linear layers in another format; embedding, head, router and norms keep theirs."""
        return msgspec.structs.replace(self, **dict.fromkeys(QUANTISABLE, name))


def format_named(name: str, place: str) -> WeightFormat:
    """The format of this name. Raises BadInput for an unknown one."""
    if name not in WEIGHT_FORMATS:
        raise BadInput(place, name, "not a weight format", f"use one of {', '.join(WEIGHT_FORMATS)}")
    return WEIGHT_FORMATS[name]


def weight_bytes(params: int, fmt: WeightFormat) -> int:
    """ceil(params x bits / 8), scales included."""
    return -(-params * fmt.bits.numerator // (fmt.bits.denominator * 8))
