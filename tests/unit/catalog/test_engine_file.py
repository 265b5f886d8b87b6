"""Serving engines as TOML: each setting has one source, and limits depend on the device."""

from pathlib import Path

import pytest

from stageline.catalog.decode import parse_toml
from stageline.catalog.engine_file import engine_entry
from stageline.catalog.loader import Catalog
from stageline.errors import BadInput

ENGINE = """
name = "own"
title = "Our own"
release = "1"
credits = "stages"
batch_holds = "all"
batching = "greedy"
pipelined_batching = "greedy"
queueing = "fcfs"
kv = "grow"
prefix_cache = true
prefix_cache_with_state = false
block_tokens = 16
[[limits]]
kinds = ["gpu"]
min_memory_bytes = 100
max_num_seqs = 8
max_num_batched_tokens = 64
[[limits]]
max_num_batched_tokens = 32
[[source]]
mark = "assumed"
where = "here"
covers = ["*"]
"""


@pytest.mark.parametrize(
    ("device", "running", "tokens"),
    [
        ("h100-sxm", 1024, 8192),
        ("a100-80g", 256, 2048),
        ("rtx-4090", 256, 2048),
        ("mi300x", 1024, 8192),
        ("tpu-v5e", 256, 512),
        ("tpu-v6e", 256, 1024),
    ],
)
def test_limits_of_vllm_by_device(device: str, running: int, tokens: int) -> None:
    """vLLM's get_batch_defaults for `vllm serve`."""
    shelf = Catalog()
    found = shelf.engine("vllm-v1").engine.limits_of(shelf.device(device).device)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (running, tokens)


@pytest.mark.parametrize("kind", ["wafer", "gpu", "tpu", "lpu"])
def test_every_device_class_has_one_default(kind: str) -> None:
    shelf = Catalog()
    names = [name for name in shelf.engines() if kind in shelf.engine(name).engine.default_for]
    assert names == ["vllm-v1" if kind in ("gpu", "tpu") else "pipeline"]
    assert shelf.engine_for(kind).engine.name == names[0]


def test_the_first_row_that_matches_counts() -> None:
    engine = engine_entry(parse_toml(ENGINE.encode(), "own.toml"), "own.toml").engine
    assert engine.limits_on("x", "gpu", 100).max_num_seqs == 8
    assert engine.limits_on("x", "gpu", 99).max_num_batched_tokens == 32
    assert engine.limits_on("x", "wafer", 100).max_num_seqs is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('covers = ["*"]', 'covers = ["kv"]', "no [[source]] covers this setting"),
        ("block_tokens = 16", "block_tokens = 0", "$.block_tokens"),
        ('kv = "grow"', 'kv = "grow"\npreempt = true', "preempt"),
        ("max_num_batched_tokens = 32", 'devices = ["a"]\nmax_num_batched_tokens = 32', "no row for all other devices"),
        ("max_num_seqs = 8", "max_num_seqs = 0", "$.limits[0].max_num_seqs"),
        ('credits = "stages"', 'credits = "many"', "$.credits"),
    ],
)
def test_a_file_that_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(BadInput) as raised:
        engine_entry(parse_toml(ENGINE.replace(old, new).encode(), "own.toml"), "own.toml")
    assert says in str(raised.value)
    assert "own.toml" in str(raised.value)


def test_an_engine_of_the_users_own_catalogue(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "own.toml").write_text(ENGINE)
    assert Catalog([tmp_path]).engine("own").engine.title == "Our own"
    assert "own" in Catalog([tmp_path]).engines()


@pytest.mark.parametrize(
    ("engine", "device", "ranks", "running", "sizes"),
    [
        # vLLM logs for max_num_seqs 8 and 1,024: [1, 2, 4, 8, 16] and 51 sizes up to 512
        ("vllm-v1", "h100-sxm", 1, 8, (1, 2, 4, 8, 16)),
        ("vllm-v1", "h100-sxm", 1, 1024, (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))),
        ("sglang", "h100-sxm", 1, 2048, (1, 2, 4, 8, 12, *range(16, 257, 8))),
        ("sglang", "rtx-4090", 2, 2048, (1, 2, 4, 8, 12, 16, 24)),
        ("sglang", "rtx-4090", 4, 2048, (1, 2, 4, 8, 12, *range(16, 81, 8))),
        ("sglang", "b200", 8, 2048, (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), 512)),
        ("trtllm", "h100-sxm", 1, 2048, (*range(1, 33), 64, 128)),
    ],
)
def test_captured_sizes(engine: str, device: str, ranks: int, running: int, sizes: tuple[int, ...]) -> None:
    shelf = Catalog()
    found = shelf.engine(engine).engine
    assert found.graphs is not None
    most = found.graph_most(found.limits_of(shelf.device(device).device), ranks, running)
    assert found.graphs.sizes(most) == sizes


GRAPHS = """
[graphs]
first = [1, 2]
ranges = [[4, 4]]
most = 16
eager_op_ns = 1
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("first = [1, 2]", "first = [2, 1]", "first, ranges.*must ascend"),
        ("ranges = [[4, 4]]", "ranges = [[4, 0]]", "first, ranges.*must ascend"),
        ("ranges = [[4, 4]]", "ranges = [[4, 4], [3, 1]]", "first, ranges.*must ascend"),
        ("most = 16", "most = 99999999", "graphs.most"),
        ("eager_op_ns = 1", "eager_op_ns = -1", "graphs.eager_op_ns"),
    ],
)
def test_sizes_that_make_no_list_are_refused(old: str, new: str, says: str) -> None:
    text = ENGINE + GRAPHS
    assert engine_entry(parse_toml(text.encode(), "own.toml"), "own.toml").engine.graphs
    with pytest.raises(BadInput, match=says):
        engine_entry(parse_toml(text.replace(old, new).encode(), "own.toml"), "own.toml")
