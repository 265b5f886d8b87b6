"""What a fleet must satisfy, each with a message that names the place, the value and the way out."""

from typing import Any

import msgspec
import pytest

from stageline.engine.fleet import Fleet, HandOver, Pool, Tier
from stageline.engine.fleet_check import check_fleet, check_hash_blocks, handing_over, parse_fleet
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput
from stageline.testing import uniform_plan

NETWORK = HandOver(bytes_per_s=10**9)
MEMORY = Tier(capacity_bytes=10**6, write_bytes_per_s=10**9, read_bytes_per_s=10**9)
CACHED = Scheduling(prefix_cache=True)


def pool(name: str, role: str = "both", *, scheduling: Scheduling | None = None, **plan: Any) -> Pool:
    made = {"name": name, "role": role, "plan": uniform_plan(1, **plan), "scheduling": scheduling or Scheduling()}
    return msgspec.convert(made, Pool)


def split(network: HandOver | None = NETWORK, **decode: Any) -> Fleet:
    """A prefill and a decode pool."""
    return Fleet(pools=(pool("p", "prefill"), pool("d", "decode", **decode)), hand_over=network)


def hosting(pool: Pool) -> Pool:
    """The same with host memory."""
    return msgspec.structs.replace(pool, host=MEMORY)


def made(*pools: Pool, **more: Any) -> Fleet:
    return Fleet(pools=pools, **more)


def test_what_fits_together_is_taken() -> None:
    tiered = made(hosting(pool("a", scheduling=CACHED)), store=MEMORY, offload="write-through", balance_sees_host=True)
    stored = made(pool("a", scheduling=CACHED), store=MEMORY, load="always")
    for fleet in (split(), made(pool("a"), pool("b", model="other")), made(pool("a")), tiered, stored):
        check_fleet(fleet, "fleet")
        assert parse_fleet(fleet.canonical(), "fleet") == fleet


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        (made(), "pools: a fleet has 1 to 1,024 pools (got 0); give some [[pool]]"),
        (made(pool("a"), pool("a")), "pools: two pools have this name (got 'a'); give each pool a name of its own"),
        (made(pool("a"), format="stageline-fleet/9"), "$.format: expected stageline-fleet/1 (got 'stageline-fleet/9')"),
        (made(pool("a", replicas=0)), "pool a, plan: $.replicas: must lie between 1"),
        (
            made(pool("a", replicas=40_000), pool("b", replicas=40_000)),
            "replicas of all pools: at most 65,536 (got 80000); take fewer replicas",
        ),
        (
            made(pool("p", "prefill"), pool("b")),
            "pool p: no pool decodes what it prefills of test (got 'prefill'); add [kv-transfer] and a pool",
        ),
        (
            made(pool("p", "prefill"), pool("d", "decode", model="other"), hand_over=NETWORK),
            "pool p: no pool decodes what it prefills of test (got 'prefill'); add a pool with the role decode",
        ),
        (made(pool("d", "decode"), pool("b")), "pool d: no pool prefills prompts of test for it (got 'decode'); add"),
        (split(None), "KV moves from pool p to pool d, and nothing says over which network; add [kv-transfer]"),
        (split(block_tokens=32), "pool d: its KV blocks have 32 tokens, those of pool p, which hands over to it, 16"),
        (
            split(scheduling=Scheduling(hash_block_tokens=64)),
            "pool d: its hash blocks have 64 tokens, those of pool p, which hands over to it, 0",
        ),
        (
            made(pool("a"), hand_over=NETWORK),
            "KV transfer: no pool hands KV over; leave it out, or give pools the roles prefill and decode",
        ),
        (
            split(HandOver(bytes_per_s=1, streamed=True)),
            'KV transfer, streamed: KV can leave chunk by chunk only where it is known from the start where it goes '
            '(got True); give order = "destination-first", or leave it out',
        ),
        (
            split(HandOver(bytes_per_s=1, decode_on_both=True)),
            "KV transfer, decode-on-both: no pool has the role both (got True); leave it out, or give a pool that role",
        ),
        (
            made(pool("a", scheduling=Scheduling(balance="kv"))),
            "pool a, balance: it is a setting of the router, which all pools share (got 'kv'); give balance in",
        ),
        (
            made(pool("a", scheduling=Scheduling(front_end_ns=5))),
            "pool a, front_end_ns: it is a setting of the router, which all pools share (got 5); give front-end in",
        ),
        (
            made(pool("a", scheduling=Scheduling(queueing="mine:First"))),
            "pool a, queueing: a file may not name code to import (got 'mine:First'); give --queueing mine:First to",
        ),
        (made(pool("a", scheduling=Scheduling(kv="gro"))), "pool a, scheduling: --kv gro: there is no such policy"),
        (made(pool("a"), balance="kvv"), "routing: --balance kvv: there is no such policy; known: round-robin"),
        (made(pool("a"), balance="mine:Best"), "routing, balance: a file may not name code to import (got"),
        (made(hosting(pool("a"))), "pool a, host: host memory keeps what a prefix cache gives up, and this pool"),
        (made(pool("a"), store=MEMORY), "store: a store keeps what prefix caches give up, and no pool has one; give"),
        (
            made(pool("a", scheduling=CACHED), offload="write-through"),
            "offload: there is no tier to which this could apply (got 'write-through'); give a pool host",
        ),
        (made(pool("a"), load="always"), "load: there is no tier to which this could apply (got 'always'); give"),
        (
            made(pool("a", scheduling=CACHED), store=MEMORY, balance_sees_host=True),
            "balance_sees_host: there is no tier to which this could apply (got True); give a pool host memory",
        ),
        (made(pool("a"), balance="prefix"), "routing: --balance prefix needs a prefix cache: add --prefix-cache"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(fleet: Fleet, message: str) -> None:
    with pytest.raises(BadInput) as error:
        check_fleet(fleet, "f")
    assert message in str(error.value)
    assert str(error.value).startswith("f")


def test_two_models_need_two_names() -> None:
    info = {"tp": 1}
    pools = [msgspec.structs.replace(pool(str(n)), plan=_planned(n, info)) for n in (1, 2)]
    with pytest.raises(
        BadInput, match="pool 2, model: pool 1 has a model of this name with 1 layers, and this one has 2"
    ):
        check_fleet(made(*pools), "f")


def test_kv_is_moved_in_one_format() -> None:
    kinds = [msgspec.structs.replace(uniform_plan(1), info={"kv_type": kind}) for kind in ("fp8", "bf16")]
    pools = [Pool(name=role, role=role, plan=plan) for role, plan in zip(("prefill", "decode"), kinds, strict=True)]
    with pytest.raises(BadInput, match="pool decode: its KV cache is bf16, that of pool prefill, which hands over"):
        check_fleet(made(*pools, hand_over=NETWORK), "f")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "fleet: not a fleet: "),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"pools": [{"name": "A b"}]}', "pools[0].name"),
        (b'{"pools": [], "hand_over": {"bytes_per_s": 0}}', "Expected `int` >= 1 - at `$.hand_over.bytes_per_s`"),
        (uniform_plan(1).canonical(), "it is a plan, and a fleet has pools of plans; name it in a [[pool]]: plan ="),
        (b'{"pool": []}', "did you mean pools? known: pools, hand_over, balance, front_end_ns, store, offload,"),
        (b'{"pools": [], "hand_over": {"bytes_per_s": 1, "latency": 2}}', "did you mean latency_ns? known:"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_fleet(data, "fleet")
    assert message in str(error.value)


def test_hash_blocks_fit_the_blocks_of_every_cache() -> None:
    cached = Scheduling(prefix_cache=True)
    fleet = made(pool("a"), pool("b", scheduling=cached, block_tokens=48))
    check_hash_blocks(fleet, 96, "f")
    check_hash_blocks(fleet, 0, "f")  # the plan's own
    with pytest.raises(
        BadInput, match="f, pool b: the hash blocks of the workload are not a multiple of its KV blocks"
    ):
        check_hash_blocks(fleet, 64, "f")


def test_who_hands_over_to_whom() -> None:
    pools = (
        pool("p", "prefill"),
        pool("q", "prefill", model="x"),
        pool("d", "decode"),
        pool("b"),
        pool("e", "decode", model="x"),
    )
    pairs = [[(s.name, t.name) for s, t in handing_over(made(*pools, hand_over=n))] for n in _NETWORKS]
    assert pairs == [[("p", "d"), ("q", "e")], [("p", "d"), ("p", "b"), ("q", "e")]]


_NETWORKS = (NETWORK, HandOver(bytes_per_s=1, decode_on_both=True))


def _planned(stages: int, info: dict[str, Any]) -> Any:
    return msgspec.structs.replace(uniform_plan(stages), info=info)
