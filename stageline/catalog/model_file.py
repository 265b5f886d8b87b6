"""The TOML file of a model, and the ModelSpec that it describes."""

from typing import Any

import msgspec

from stageline.catalog.citation import Citation, check_sources
from stageline.catalog.decode import convert
from stageline.errors import BadInput
from stageline.model.attention import Attention
from stageline.model.check import MAX_LAYERS, check_spec
from stageline.model.ffn import Ffn
from stageline.model.formats import WeightFormats
from stageline.model.spec import ElementType, Layer, ModelSpec


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sequence of layers, each named "ATTENTION+FFN", `repeat` times."""

    layers: tuple[str, ...]  # "ATTENTION+FFN", names of the tables below
    repeat: int = 1


class ModelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file in models/."""

    name: str  # the file's stem
    title: str
    hidden_size: int
    vocab_size: int
    attention: dict[str, Attention]  # kinds of attention, by a name of the file's choice
    ffn: dict[str, Ffn]  # kinds of FFN, by a name of the file's choice
    block: tuple[Block, ...]  # the layers, in order
    source: tuple[Citation, ...]  # where the numbers were published
    hf_ids: tuple[str, ...] = ()  # Hugging Face models with exactly these layers and formats
    formats: WeightFormats = WeightFormats()
    tied_embeddings: bool = False  # embedding and head share their weights
    context_tokens: int = 0  # the longest context; 0: unknown
    kv_type: ElementType = "bf16"  # of the KV cache, unless a plan says otherwise
    state_type: ElementType = "fp32"  # of recurrent states
    residual_block_layers: int = 0  # layers per block of attention residuals; 0: a plain residual stream
    residual_streams: int = 1  # parallel streams of hyper-connections
    nominal_layer_bytes: int = 0  # the rounded bytes per layer of a published placement; 0: none
    tower_params: int = 0  # of a vision tower in 16 bits, on the first stage; 0: none, or not counted
    mtp_layers: int = 0  # layers for multi-token prediction, like the last one
    quant_method: str = ""  # of the checkpoint's quantization_config; "": not quantised
    left_out: tuple[str, ...] = ()  # parts of the checkpoint that are not modelled


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue, and the sources of its numbers."""

    title: str
    spec: ModelSpec
    sources: tuple[Citation, ...]
    hf_ids: tuple[str, ...] = ()  # of the Hugging Face models that have these layers and formats


def _layers(file: ModelFile, place: str) -> tuple[Layer, ...]:
    """All blocks, unrolled. Raises BadInput for too many layers and unknown names."""
    layers: list[Layer] = []
    for i, block in enumerate(file.block):
        if not 1 <= block.repeat <= MAX_LAYERS or len(layers) + block.repeat * len(block.layers) > MAX_LAYERS:
            raise BadInput(f"{place}: $.block[{i}].repeat", block.repeat, f"a model has 1 to {MAX_LAYERS} layers")
        for j, text in enumerate(block.layers):
            attention, _, ffn = text.partition("+")
            if attention not in file.attention or ffn not in file.ffn:
                known = f"attention {', '.join(file.attention)}; ffn {', '.join(file.ffn)}"
                raise BadInput(f"{place}: $.block[{i}].layers[{j}]", text, 'not "attention+ffn"', f"known: {known}")
        pairs = [text.partition("+") for text in block.layers]
        run = [Layer(file.attention[a], file.ffn[f], file.formats) for a, _, f in pairs]
        layers += run * block.repeat
    return tuple(layers)


def model_entry(document: dict[str, Any], place: str) -> ModelEntry:
    """A model from its TOML document. Raises BadInput naming file and field."""
    file = convert(document, ModelFile, place)
    check_sources(document, file.source, place)
    spec = ModelSpec(
        name=file.name,
        hidden=file.hidden_size,
        vocab=file.vocab_size,
        layers=_layers(file, place),
        formats=file.formats,
        tied=file.tied_embeddings,
        context=file.context_tokens,
        kv_type=file.kv_type,
        state_type=file.state_type,
        residual_block=file.residual_block_layers,
        residual_streams=file.residual_streams,
        nominal_layer_bytes=file.nominal_layer_bytes,
        left_out=file.left_out,
        tower_params=file.tower_params,
        quant_method=file.quant_method,
        mtp_layers=file.mtp_layers,
    )
    check_spec(spec, place)
    return ModelEntry(title=file.title, spec=spec, sources=file.source, hf_ids=file.hf_ids)
