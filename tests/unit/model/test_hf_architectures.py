"""Published configs import, and their sizes are the published ones or follow from the config by hand."""

from collections import Counter
from pathlib import Path

import pytest

from stageline.api.lookup import find_model
from stageline.catalog.loader import Catalog
from stageline.model.hf import import_config
from stageline.model.spec import ModelSpec
from stageline.model.summary import ModelSummary, summarise


def spec_of(shared_data: Path, name: str) -> ModelSpec:
    path = shared_data / "configs" / name
    return find_model(str(path if path.is_dir() else path.with_name(f"{name}.json")), Catalog())


def summary_of(shared_data: Path, name: str) -> ModelSummary:
    return summarise(spec_of(shared_data, name))


# Total and active parameters in billions: model cards, in the comment. "Active" counts the head and not the embedding,
# the cards often both: then the comment adds the embedding, vocab x hidden.
@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("openai--gpt-oss-20b", 20.91, 3.61),  # card: 20.91 B total, 3.61 B active
        ("Qwen--Qwen3.5-35B-A3B", 34.66, 2.95),  # card: 35 B and 3 B
        ("Qwen--Qwen3-VL-8B-Instruct", 8.19, 7.57),  # the language part is Qwen3-8B, 8,190,735,360
        ("MiniMaxAI--MiniMax-M2.5", 228.69, 10.42),  # card: 230 B, 10 B; 228.7 B in the checkpoint
        ("deepseek-ai--DeepSeek-V3.2", 671.88, 37.48),  # 671 B as V3, and an indexer of 13.98 M in each of 61 layers
        ("deepseek-ai--DeepSeek-V4-Flash", 284.33, 13.27),  # card: 284 B, 13 B
        ("zai-org--GLM-5", 743.91, 40.83),  # card: 744 B, 40 B
        ("google--gemma-4-26B-A4B", 25.23, 3.82),  # card: 25.2 B, 3.8 B
        ("nvidia--Nemotron-H-56B-Base-8K", 56.32, 55.25),  # card: 56 B
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.58, 3.23),  # card: 31.6 B, 3.2 B (3.6 B with embeddings)
        ("nvidia--Llama-3_3-Nemotron-Super-49B-v1", 49.87, 48.82),  # card: 49.9 B
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 107.77, 16.14),  # 109 B with vision; 17 B = 16.14 + 1.03
        ("mistralai--Mixtral-8x7B-v0.1", 46.70, 12.75),  # 46.7 B; 12.9 B = 12.75 + 0.13
        ("XiaomiMiMo--MiMo-V2-Flash", 308.78, 14.82),  # card: 309 B, 15 B
        ("stepfun-ai--Step-3.7-Flash", 195.84, 10.35),  # card: 196 B, 11 B with 96 heads in sliding layers (here 64)
        ("Qwen--Qwen3-235B-A22B-FP8", 235.09, 21.57),  # card: 235 B; 22 B = 21.57 + 0.62
        ("Qwen--Qwen3-32B-FP8", 32.76, 31.98),  # card: 32.8 B
    ],
)
def test_parameters(shared_data: Path, name: str, total: float, active: float) -> None:
    found = summary_of(shared_data, name)
    assert (round(found.total_params / 1e9, 2), round(found.active_params / 1e9, 2)) == (total, active)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        # Routed experts 24 x 32 x 3 x 2880 x 2880 x 4.25 bits = 10.15 GB, all else in BF16; card: 12.8 GiB.
        ("openai--gpt-oss-20b", 13.76),
        (
            "nvidia--Llama-3.1-70B-Instruct-FP8",
            72.66,
        ),  # linear layers in FP8, 2.10 B parameters in BF16
        ("nvidia--Kimi-K2.6-NVFP4", 594.21),  # as the INT4 checkpoint: 4.5 bits too
        # Experts 40 x 256 x 3 x 2048 x 512 in 4.5 bits = 18.12 GB; embedding 1.02 GB in BF16; attention in FP8.
        ("nvidia--Qwen3.6-35B-A3B-NVFP4", 20.82),
        ("nvidia--Qwen3.6-27B-NVFP4", 20.15),
        # Experts 43 x 256 x 3 x 4096 x 2048 in 4.25 bits = 147.17 GB; the card says about 160 GB with the MTP layer.
        ("deepseek-ai--DeepSeek-V4-Flash", 155.93),
        ("deepseek-ai--DeepSeek-V3.2", 674.03),
        ("Qwen--Qwen3-235B-A22B-FP8", 236.45),
        ("MiniMaxAI--MiniMax-M2.5", 230.02),
        ("XiaomiMiMo--MiMo-V2-Flash", 310.15),
        ("zai-org--GLM-5", 1487.82),  # BF16
    ],
)
def test_weight_gigabytes(shared_data: Path, name: str, gigabytes: float) -> None:
    assert round(summary_of(shared_data, name).weight_bytes / 1e9, 2) == gigabytes


# (KV bytes per token, of which beyond full windows; bytes of the full windows of a request; state bytes of a request)
CACHES = {
    # 2 x 8 heads x 64 x 2 B = 2,048 B in each of 24 layers, 12 of them with windows of 128 tokens.
    "openai--gpt-oss-20b": (24 * 2048, 12 * 2048, 12 * 128 * 2048, 0),
    # 10 full layers of 2 x 2 x 256 x 2 B; 30 states of 32 x 128 x 128 fp32 and 3 x (2 x 16 x 128 + 32 x 128) bf16.
    "Qwen--Qwen3.5-35B-A3B": (10 * 2048, 10 * 2048, 0, 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)),
    "Qwen--Qwen3-VL-8B-Instruct": (36 * 2 * 8 * 128 * 2, 36 * 4096, 0, 0),
    "MiniMaxAI--MiniMax-M2.5": (62 * 2 * 8 * 128 * 2, 62 * 4096, 0, 0),
    # 576 latent elements in bf16, and an index key of 128 fp8 with an fp32 scale.
    "deepseek-ai--DeepSeek-V3.2": (61 * (1152 + 132), 61 * (1152 + 132), 0, 0),
    "zai-org--GLM-5": (78 * (1152 + 132), 78 * (1152 + 132), 0, 0),
    # Ratios 0, 0, then 4 and 128 in turn (21 and 20 layers): one entry of 512 x 2 B each, and one index key of 132 B
    # per 4 tokens. Two layers have only their window of 1,024 B per token. Each layer keeps a window of 128 tokens;
    # compressors keep inputs of 8 or 128 tokens, keys and gates of 2 x (512 + 128) or 512 channels in fp32.
    "deepseek-ai--DeepSeek-V4-Flash": (
        21 * (256 + 33) + 20 * 8 + 2 * 1024,
        21 * (256 + 33) + 20 * 8,
        43 * 128 * 1024 + 21 * 8 * 2 * 2 * 640 * 4 + 20 * 128 * 2 * 512 * 4,
        0,
    ),
    # 25 sliding layers of 2 x 8 x 256 x 2 B and 1,024 tokens; 5 global ones of 2 x 2 x 512 x 2 B: keys and values
    # come from one projection, but differ by norm and positions, so that both are cached.
    "google--gemma-4-26B-A4B": (25 * 8192 + 5 * 4096, 5 * 4096, 25 * 1024 * 8192, 0),
    # 36 of 48 layers attend within chunks of 8,192 tokens.
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (48 * 4096, 12 * 4096, 36 * 8192 * 4096, 0),
    # 49 of 80 layers have attention.
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": (49 * 4096, 49 * 4096, 0, 0),
    # 23 Mamba-2 states of 64 x 64 x 128 fp32 and 3 x (4096 + 2 x 8 x 128) bf16; 6 attention layers of 2 x 2 x 128.
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (6 * 1024, 6 * 1024, 0, 23 * (64 * 64 * 128 * 4 + 3 * 6144 * 2)),
    "nvidia--Nemotron-H-56B-Base-8K": (10 * 4096, 10 * 4096, 0, 54 * (256 * 64 * 256 * 4 + 3 * 20480 * 2)),
    # Keys of 192 and values of 128: 4 KV heads in 9 full layers, 8 in 39 with a window of 128 tokens.
    "XiaomiMiMo--MiMo-V2-Flash": (9 * 4 * 640 + 39 * 8 * 640, 9 * 4 * 640, 39 * 128 * 8 * 640, 0),
    # 12 full layers and 33 with a window of 512.
    "stepfun-ai--Step-3.7-Flash": (45 * 4096, 12 * 4096, 33 * 512 * 4096, 0),
    "mistralai--Mixtral-8x7B-v0.1": (32 * 4096, 32 * 4096, 0, 0),
    "nvidia--Llama-3.1-70B-Instruct-FP8": (80 * 2048, 80 * 2048, 0, 0),  # an fp8 cache
    "nvidia--Kimi-K2.6-NVFP4": (61 * 576, 61 * 576, 0, 0),
}


@pytest.mark.parametrize("name", CACHES)
def test_caches_and_states(shared_data: Path, name: str) -> None:
    found = summary_of(shared_data, name)
    sizes = (found.kv_bytes_per_token, found.kv_bytes_per_long_token, found.window_bytes_per_request)
    assert (*sizes, found.state_bytes_per_request) == CACHES[name]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("nvidia--Nemotron-H-56B-Base-8K", {"mamba2": 54, "dense": 54, "gqa": 10}),
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"mamba2": 23, "moe": 23, "gqa": 6}),
        ("nvidia--Llama-3_3-Nemotron-Super-49B-v1", {"gqa+dense": 49, "dense": 31}),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", {"gqa-chunk+moe": 36, "gqa+moe": 12}),
        ("XiaomiMiMo--MiMo-V2-Flash", {"gqa+dense": 1, "gqa-window+moe": 39, "gqa+moe": 8}),
        ("zai-org--GLM-5", {"mla-sparse+dense": 3, "mla-sparse+moe": 75}),
        ("Qwen--Qwen3.5-35B-A3B", {"gated-delta+moe": 30, "gqa+moe": 10}),
    ],
)
def test_kinds_of_layers(shared_data: Path, name: str, kinds: dict[str, int]) -> None:
    assert dict(Counter(layer.kind for layer in summary_of(shared_data, name).layers)) == kinds


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("MiniMaxAI--MiniMax-M2.5", ("3 MTP layers",)),
        ("deepseek-ai--DeepSeek-V4-Flash", ("MTP layer",)),
        ("google--gemma-4-26B-A4B", ("vision tower",)),
        ("stepfun-ai--Step-3.7-Flash", ("3 MTP layers",)),
    ],
)
def test_what_is_left_out_is_named(shared_data: Path, name: str, left_out: tuple[str, ...]) -> None:
    assert spec_of(shared_data, name).left_out == left_out


def test_every_published_config_imports(shared_data: Path) -> None:
    names = sorted(path.stem if path.is_file() else path.name for path in (shared_data / "configs").iterdir())
    assert len({spec_of(shared_data, name).name for name in names}) >= 29


def test_streams_of_hyper_connections_cross_the_boundaries(shared_data: Path) -> None:
    spec = spec_of(shared_data, "deepseek-ai--DeepSeek-V4-Flash")
    assert spec.boundary_elements(20) == 4 * 4096
    # 2 x ((4 + 2) x 4 rows of 4 x 4096, as many biases, 3 scales) per layer; (4 x 4 x 4096 + 4 + 1) at the head.
    extra = sum(t.params for layer in spec.layers for t in layer.extra) + sum(t.params for t in spec.extra)
    assert extra == 43 * 2 * (24 * 16_384 + 24 + 3) + 65_541


def test_routed_experts_may_have_a_format_of_their_own(shared_data: Path) -> None:
    formats = spec_of(shared_data, "deepseek-ai--DeepSeek-V4-Flash").layers[5].formats
    assert (formats.routed_experts, formats.shared_experts, formats.attention) == (
        "mxfp4-w4a8",
        "fp8-block",
        "fp8-block",
    )


def test_infinity_and_nan_are_no_sizes(shared_data: Path) -> None:
    text = (shared_data / "configs" / "nvidia--Nemotron-H-56B-Base-8K.json").read_text()
    assert "Infinity" in text
    changed = text.replace("Infinity", "NaN").encode()
    assert import_config(changed, "c", "x").total_params() == import_config(text.encode(), "c", "x").total_params()
