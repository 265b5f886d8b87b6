"""The catalogue: every shipped entry loads, users add their own, mistakes are named."""

from pathlib import Path

import pytest

from stageline.api.lookup import find_entry, find_model
from stageline.catalog.citation import source_of
from stageline.catalog.loader import Catalog
from stageline.errors import BadInput, UsageError

SHELF = Catalog()

DEVICE = """
name = "mine"
title = "Mine"
kind = "gpu"
memory_bytes = 1000
bandwidth_bytes_per_s = 1000
[peak_flops]
bf16 = 1000
[share]
flops = 0.5
bandwidth = 0.5
memory = 0.9
[overhead]
[scale_out]
bytes_per_s = 10
latency_ns = 5
[[source]]
mark = "assumed"
where = "here"
covers = ["*"]
"""


@pytest.mark.parametrize("name", SHELF.models())
def test_models_load(name: str) -> None:
    entry = SHELF.model(name)
    assert entry.spec.name == name
    assert entry.spec.weight_bytes() > 0
    assert source_of("hidden_size", entry.sources) in entry.sources


@pytest.mark.parametrize("name", SHELF.devices())
def test_devices_load(name: str) -> None:
    assert SHELF.device(name).device.name == name


@pytest.mark.parametrize("name", SHELF.links())
def test_links_load(name: str) -> None:
    assert SHELF.link(name).network.bytes_per_s > 0


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "bf16", "scale_out"),
    [
        ("a100-80g", 80, 2.039, 312, 25),
        ("h100-sxm", 80, 3.35, 989, 50),
        ("h200", 141, 4.8, 989, 50),
        ("h800", 80, 3.35, 989, 50),
        ("h20", 96, 4.0, 148, 50),
        ("b300", 288, 8.0, 2250, 100),
        ("gb200-nvl72", 185, 8.0, 2500, 100),
        ("mi300x", 192, 5.3, 1307, 50),
        ("wse-3", 44, 21_600, 12_500, 150),
        ("wse-3t", 44, 43_200, 25_000, 300),
    ],
)
def test_published_figures(name: str, memory: float, bandwidth: float, bf16: float, scale_out: float) -> None:
    device = SHELF.device(name).device
    assert (device.nominal_memory_bytes or device.memory_bytes) == memory * 1e9
    assert device.bandwidth_bytes_per_s == round(bandwidth * 1e12)
    assert device.peak_flops.bf16 == bf16 * 1e12
    assert device.scale_out.bytes_per_s == scale_out * 1e9


def test_wafer_layer_times_are_the_public_token_rates() -> None:
    overhead = SHELF.device("wse-3").device.overhead
    assert overhead.dense_layer_ns == round(1e9 / 969 / 126)  # Llama-3.1-405B, 126 layers
    assert overhead.moe_layer_ns == round(1e9 / 981 / 61)  # Kimi K2.6, 61 layers
    assert SHELF.device("wse-3t").device.scale_out.latency_ns == 2_000


def test_a_number_left_to_its_default_needs_no_source() -> None:
    some = SHELF.device("h100-sxm").sources[1:]
    assert source_of("peak_flops.fp4", some) is None
    found = source_of("share.flops", some)
    assert found is not None
    assert found.mark == "second-hand"


def test_users_add_and_override(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/mine.toml").write_text(DEVICE)
    shelf = Catalog([tmp_path])
    assert shelf.device("mine").device.memory_bytes == 1000
    assert "h100-sxm" in shelf.devices()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("memory_bytes = 1000", "memory_bytes = 0", "$.memory_bytes"),
        ("memory_bytes = 1000", 'memory_bytes = "1"', "$.memory_bytes"),
        ("flops = 0.5", "flops = 1.5", "$.share.flops"),
        ("latency_ns = 5", "latency_ns = -5", "$.scale_out.latency_ns"),
        ("latency_ns = 5", "latency_ms = 5", "latency_ms"),
        ('covers = ["*"]', 'covers = ["share"]', "$.memory_bytes"),
        ('name = "mine"', 'name = "yours"', "$.name"),
        ('mark = "assumed"', 'mark = "sure"', "$[0].mark"),
        ("[share]", "[share", "TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/mine.toml").write_text(DEVICE.replace(old, new, 1))
    with pytest.raises(BadInput) as error:
        Catalog([tmp_path]).device("mine")
    assert named in str(error.value)
    assert "devices/mine.toml" in str(error.value)


def test_two_sources_for_one_number(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    twice = '[[source]]\nmark = "assumed"\nwhere = "there"\ncovers = ["*"]\n'
    (tmp_path / "devices/mine.toml").write_text(DEVICE + twice)
    with pytest.raises(BadInput, match="several"):
        Catalog([tmp_path]).device("mine")


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="kimi-k3"):
        SHELF.model("kimi-k4")
    with pytest.raises(BadInput, match="no such directory"):
        Catalog([tmp_path / "nowhere"])


MODEL = """
name = "mine"
title = "Mine"
hidden_size = 64
vocab_size = 100
[attention.a]
kind = "gqa"
heads = 4
kv_heads = 2
head_dim = 16
[ffn.f]
kind = "dense"
width = 128
[[block]]
layers = ["a+f"]
repeat = 3
[[source]]
mark = "assumed"
where = "here"
covers = ["*"]
"""


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("heads = 4", "heads = 0", "attention.heads"),
        ('"a+f"', '"a+g"', "$.block[0].layers[0]"),
        ('"a+f"', '"af"', "$.block[0].layers[0]"),
        ("repeat = 3", "repeat = 0", "$.block[0].repeat"),
        ("repeat = 3", "repeat = 1_000_000", "$.block[0].repeat"),
        ("hidden_size = 64", "hidden = 64", "hidden"),
        ('kind = "gqa"', 'kind = "magic"', "magic"),
        ('[ffn.f]\nkind = "dense"\nwidth = 128', '[ffn.f]\nkind = "moe"\nexperts=2\ntop_k=3\nwidth=8', "top_k"),
        ("[[block]]", '[formats]\nffn = "fp3"\n[[block]]', "formats.ffn"),
        ("hidden_size = 64", "hiden_size = 64", "did you mean hidden_size? known: name, title"),
        ("heads = 4", "heads = 4\nkv_head = 4", "did you mean kv_heads"),
        ("width = 128", "width = 128\nexperts = 2", "known: width, gated, bias"),
        ("repeat = 3", "repeats = 3", "did you mean repeat? known: layers, repeat"),
    ],
)
def test_model_mistakes_are_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/mine.toml").write_text(MODEL.replace(old, new, 1))
    with pytest.raises(BadInput) as error:
        Catalog([tmp_path]).model("mine")
    assert named in str(error.value)


def test_models_by_their_hugging_face_id() -> None:
    shelf = Catalog()
    found = [find_entry(text, shelf) for text in ("meta-llama/Llama-3.1-8B", "META-LLAMA/meta-llama-3.1-8b-instruct")]
    assert found == [shelf.model("llama-3.1-8b")] * 2
    ids = shelf.hf_ids()
    assert len(ids) == len({name.lower() for name in ids}) > 25
    assert all(find_model(name, shelf).name in shelf.models() for name in ids)
    with pytest.raises(BadInput, match=r"did you mean meta-llama/Llama-3\.1-8B"):
        find_model("meta-llama/Llama-3.2-8B", shelf)
    with pytest.raises(BadInput, match=r"did you mean Qwen/Qwen3-8B or .*give the path of its config\.json"):
        find_model("someone/qwen3-8b", shelf)
    with pytest.raises(UsageError, match=r"nowhere/config\.json"):
        find_model("nowhere/config.json", shelf)


def test_a_directory_that_looks_like_an_id_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta-llama/Llama-3.1-8B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"Llama-3\.1-8B/config\.json"):
        find_model("meta-llama/Llama-3.1-8B", Catalog())


@pytest.mark.parametrize(
    ("what", "name", "meant"), [("device", "h100", "h100-sxm"), ("model", "lama-3.1-8b", "llama-3.1-8b")]
)
def test_names_that_are_close(what: str, name: str, meant: str) -> None:
    with pytest.raises(BadInput, match=rf"no {what} of this name .*did you mean {meant}"):
        getattr(Catalog(), what)(name)
