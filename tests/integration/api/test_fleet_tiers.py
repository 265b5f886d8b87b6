"""Tiers in the fleet file, and what a run tells of them."""

from pathlib import Path

import pytest

import stageline
from stageline.engine.fleet import Tier
from stageline.errors import BadInput

FILE = """
[store]
capacity = "1TB"
read = "10GB/s"
write = "5GB/s"
latency = "1ms"

[tiers]
offload = "write-through"

[[pool]]
name = "all"
model = "llama-3.1-8b"
device = "h100-sxm"
host = { capacity = "64GiB", bandwidth = "25GB/s" }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def test_the_file_says_what_the_engine_gets(tmp_path: Path) -> None:
    fleet = stageline.plan_fleet(written(tmp_path, FILE)).fleet
    assert fleet.pools[0].host == Tier(
        capacity_bytes=64 << 30, write_bytes_per_s=25 * 10**9, read_bytes_per_s=25 * 10**9
    )
    assert fleet.store == Tier(
        capacity_bytes=10**12, write_bytes_per_s=5 * 10**9, read_bytes_per_s=10**10, latency_ns=10**6
    )
    assert (fleet.offload, fleet.load) == ("write-through", "cheaper")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('capacity = "64GiB"', 'capacity = "64"', "host, capacity"),
        (', bandwidth = "25GB/s" }', " }", "host"),
        ('write = "5GB/s"', 'write = "5"', "store, write"),
        ('capacity = "1TB"\n', "", "store"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert old in FILE
    with pytest.raises(BadInput, match=place):
        stageline.plan_fleet(written(tmp_path, FILE.replace(old, new)))


def test_a_run_tells_what_tiers_kept(tmp_path: Path) -> None:
    """A prefix cache of 200 blocks for chats of many users: what it gives up is found in host memory."""
    tight = FILE.replace(
        'device = "h100-sxm"', 'device = "h100-sxm"\nflags = "--num-gpu-blocks-override 200 --max-model-len 3200"'
    )
    fleet = stageline.plan_fleet(written(tmp_path, tight.replace('offload = "write-through"', 'load = "always"')))
    run = stageline.run(
        fleet, "sessions:system_prompts=2,users=5,system=64,question=300,output=16,turns=4,rate=2", requests=60
    )
    host, store = run.summary.tiers
    loaded = sum(record.load.host_tokens for record in run.requests if record.load is not None)
    assert (host.tier, store.tier) == ("host", "store")
    assert 0 < loaded == host.hit_tokens
    assert store.hit_tokens == 0 and host.peak_bytes <= host.capacity_bytes == 64 << 30
