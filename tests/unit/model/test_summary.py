"""Published and derived sizes of the catalogue's models. Sources: the models' own configs and checkpoints."""

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.model.spec import ModelSpec
from stageline.model.summary import summarise

SHELF = Catalog()


def model(name: str) -> ModelSpec:
    return SHELF.model(name).spec


def billions(value: int, digits: int) -> float:
    return round(value / 1e9, digits)


@pytest.fixture(scope="module")
def k3() -> ModelSpec:
    return model("kimi-k3")


def params_of(spec: ModelSpec, layer: int, *names: str) -> int:
    return sum(t.params for t in spec.layers[layer].tensors(spec.hidden) if not names or t.name in names)


def test_kimi_k3_totals(k3: ModelSpec) -> None:
    assert round(k3.total_params() / 1e9, 1) == 2779.5
    assert billions(k3.active_params(), 2) == 104.19
    assert round(k3.weight_bytes() / 1e9, 1) == 1559.9
    assert 1_560_860_324_864 - k3.weight_bytes() == pytest.approx(0.93e9, abs=0.01e9)  # vision and oddments


def test_kimi_k3_layer_order(k3: ModelSpec) -> None:
    linear = "".join("K" if layer.attention.linear else "M" for layer in k3.layers)
    assert linear == "KKKM" * 23 + "M"
    full = [i + 1 for i, kind in enumerate(linear) if kind == "M"]
    assert full == [*range(4, 93, 4), 93]


@pytest.mark.parametrize(
    ("layer", "names", "params"),
    [
        (1, ("routed",), 29.595),
        (1, ("shared",), 0.13212),
        (1, ("latent",), 0.05138),
        (1, ("router",), 0.00642),
        (3, ("q_a", "q_b", "kv_a", "kv_b", "o", "gate"), 0.23219),
        (1, ("qkvo", "gate", "decay", "beta", "conv"), 0.44374),
        (0, ("ffn",), 0.7267),
        (0, (), 1.170),
    ],
)
def test_kimi_k3_blocks(k3: ModelSpec, layer: int, names: tuple[str, ...], params: float) -> None:
    digits = len(str(params).split(".")[1])
    assert billions(params_of(k3, layer, *names), digits) == params


def test_kimi_k3_routed_expert(k3: ModelSpec) -> None:
    assert params_of(k3, 1, "routed") == 896 * 33_030_144


@pytest.mark.parametrize(("layer", "params", "size"), [(1, 30.229, 16.99), (3, 30.017, 16.57), (0, 1.170, 2.34)])
def test_kimi_k3_layers(k3: ModelSpec, layer: int, params: float, size: float) -> None:
    assert round(params_of(k3, layer) / 1e9, 2) == round(params, 2)
    assert round(k3.layer_bytes(layer) / 1e9, 2) == size


def test_kimi_k3_embedding_and_head(k3: ModelSpec) -> None:
    assert billions(k3.embedding().params + k3.head().params, 3) == 2.349
    assert billions(k3.embedding_bytes() + k3.head_bytes(), 3) == 4.698


@pytest.mark.parametrize(("state_type", "size"), [("fp32", 6_512_640), ("bf16", 3_366_912)])
def test_kimi_k3_state(k3: ModelSpec, state_type: str, size: int) -> None:
    spec = msgspec.structs.replace(k3, state_type=state_type)
    assert spec.state_bytes(0) == size
    assert spec.state_bytes(3) == 0


@pytest.mark.parametrize(("kv_type", "size"), [("fp8", 13_824), ("bf16", 27_648)])
def test_kimi_k3_kv(k3: ModelSpec, kv_type: str, size: int) -> None:
    assert summarise(msgspec.structs.replace(k3, kv_type=kv_type)).kv_bytes_per_token == size
    assert k3.kv_type == "fp8"


@pytest.mark.parametrize(("layers", "factor"), [(0, 1), (1, 2), (12, 2), (13, 3), (31, 4), (62, 7), (93, 9)])
def test_kimi_k3_boundaries_carry_attention_residuals(k3: ModelSpec, layers: int, factor: int) -> None:
    assert k3.boundary_elements(layers) == factor * 7168


def test_plain_models_carry_the_hidden_state() -> None:
    assert model("llama-3.1-70b").boundary_bytes(40) == 8192 * 2


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-32b", 32_762_123_264),
        ("gpt-oss-120b", 116_829_156_672),  # 116.83 B
        ("qwen3.6-27b", 26_895_998_464),
    ],
)
def test_total_params(name: str, params: int) -> None:
    assert model(name).total_params() == params


@pytest.mark.parametrize(
    ("name", "active"),
    [("deepseek-v3", 36.62), ("qwen3-30b-a3b", 3.04), ("llama-3.1-8b", 7.50), ("kimi-k2.6", 31.7)],
)
def test_active_params(name: str, active: float) -> None:
    assert billions(model(name).active_params(), len(str(active).split(".")[1])) == active


@pytest.mark.parametrize(
    ("name", "size"), [("llama-3.1-8b", 131_072), ("llama-3.1-70b", 327_680), ("llama-3.1-405b", 516_096)]
)
def test_kv_bytes_per_token(name: str, size: int) -> None:
    assert summarise(model(name)).kv_bytes_per_token == size


@pytest.mark.parametrize(("name", "size"), [("kimi-k2.6", 594.2), ("qwen3.6-27b", 53.8)])
def test_weight_gigabytes(name: str, size: float) -> None:
    assert round(model(name).weight_bytes() / 1e9, 1) == size


@pytest.mark.parametrize(
    ("name", "layers"),
    [("llama-2-13b", 40), ("llama-2-70b", 80), ("mistral-nemo-12b", 40), ("qwen2.5-7b", 28), ("kimi-k2.6", 61)],
)
def test_layer_counts(name: str, layers: int) -> None:
    assert len(model(name).layers) == layers


def test_requantising_changes_linear_weights_only() -> None:
    spec = model("llama-3.1-70b")
    linear = spec.total_params() - spec.embedding().params - spec.head().params - 8192 * (2 * 80 + 1)
    assert spec.weight_bytes() - spec.requantised("int4").weight_bytes() == linear * 2 - linear * 9 // 16
