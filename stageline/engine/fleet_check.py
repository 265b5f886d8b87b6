"""Parses a fleet file in its canonical form, and checks what every fleet must satisfy before an engine runs it."""

from collections.abc import Iterator, Sequence

import msgspec

from stageline.catalog.decode import convert
from stageline.engine.fleet import FLEET_FORMAT, Fleet, HandOver, Pool
from stageline.engine.policies.all_policies import POLICIES, check_policies
from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput, UsageError
from stageline.plan.check import MAX_REPLICAS, check_plan
from stageline.plan.schema import PLAN_FORMAT

MAX_POOLS = 1024
_MAKE_AGAIN = "make it again with stageline fleet -o"
_OF_THE_ROUTER = {"balance": "balance", "front_end_ns": "front-end"}  # settings of the one router; key of [routing]


def parse_fleet(data: bytes, place: str) -> Fleet:
    """Decode and check a fleet in JSON. Raises BadInput naming the place inside it."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(place, None, f"not a fleet: {error}", _MAKE_AGAIN) from None
    if isinstance(document, dict) and document.get("format", FLEET_FORMAT) == PLAN_FORMAT:
        raise BadInput(
            place, None, "it is a plan, and a fleet has pools of plans", 'name it in a [[pool]]: plan = "FILE"'
        )
    fleet = convert(document, Fleet, place)
    check_fleet(fleet, place)
    return fleet


def check_fleet(fleet: Fleet, place: str) -> None:
    """Raise BadInput naming the pool and the setting at fault."""
    if fleet.format != FLEET_FORMAT:
        raise BadInput(f"{place}: $.format", fleet.format, f"expected {FLEET_FORMAT}", _MAKE_AGAIN)
    if not 1 <= len(fleet.pools) <= MAX_POOLS:
        raise BadInput(
            f"{place}: pools", len(fleet.pools), f"a fleet has 1 to {MAX_POOLS:,} pools", "give some [[pool]]"
        )
    _check_names(fleet.pools, place)
    _check_models(fleet.pools, place)
    for pool in fleet.pools:
        _check_pool(pool, pool_place(place, pool.name))
    replicas = sum(pool.plan.replicas for pool in fleet.pools)
    if replicas > MAX_REPLICAS:
        raise BadInput(f"{place}: replicas of all pools", replicas, f"at most {MAX_REPLICAS:,}", "take fewer replicas")
    _check_policy(fleet.balance, fleet, place)
    _check_roles(fleet, place)
    if fleet.hand_over is not None:
        _check_hand_over(fleet, fleet.hand_over, f"{place}, KV transfer")
    _check_tiers(fleet, place)


def check_hash_blocks(fleet: Fleet, hash_block_tokens: int, place: str) -> None:
    """Raise BadInput where a pool's prefix cache can't keep blocks of so many tokens; 0: those of the pool's plan."""
    for pool in fleet.pools:
        block = pool.plan.block_tokens
        if pool.scheduling.prefix_cache and hash_block_tokens % block:
            raise BadInput(
                pool_place(place, pool.name), hash_block_tokens,
                f"the hash blocks of the workload are not a multiple of its KV blocks of {block} tokens",
                "plan it with a --block-size that divides them, or without a prefix cache",
            )  # fmt: skip


def pool_place(place: str, name: str) -> str:
    """How messages name a pool."""
    return f"{place}, pool {name}"


def handing_over(fleet: Fleet) -> Iterator[tuple[Pool, Pool]]:
    """Every pair of pools between which KV may move: from where a prompt is prefilled to where it is decoded."""
    takes = ("decode", "both") if fleet.hand_over is not None and fleet.hand_over.decode_on_both else ("decode",)
    for source in fleet.pools:
        if source.role == "prefill":
            yield from ((source, p) for p in fleet.pools if p.role in takes and p.plan.model == source.plan.model)


def _check_names(pools: Sequence[Pool], place: str) -> None:
    names = [pool.name for pool in pools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"{place}: pools", twice, "two pools have this name", "give each pool a name of its own")


def _check_models(pools: Sequence[Pool], place: str) -> None:
    """Requests tell models apart by their names. Only plans that a model was planned for have as many layers as it."""
    first: dict[str, Pool] = {}
    for pool in pools:
        if "tp" not in pool.plan.info:
            continue
        other = first.setdefault(pool.plan.model, pool)
        counts = [1 + max(visit.layers[-1] for visit in p.plan.visits if visit.layers) for p in (other, pool)]
        if counts[0] != counts[1]:
            reason = f"pool {other.name} has a model of this name with {counts[0]} layers, and this one has {counts[1]}"
            way_out = "give one of them another name: that of its file or folder"
            raise BadInput(f"{pool_place(place, pool.name)}, model", pool.plan.model, reason, way_out)


def _check_pool(pool: Pool, place: str) -> None:
    check_plan(pool.plan, f"{place}, plan")
    for field, key in _OF_THE_ROUTER.items():
        value = getattr(pool.scheduling, field)
        if value != getattr(Scheduling(), field):
            reason = "it is a setting of the router, which all pools share"
            raise BadInput(f"{place}, {field}", value, reason, f"give {key} in [routing]")
    for kind in POLICIES:
        name = str(getattr(pool.scheduling, kind))
        if ":" in name:
            _refuse_code(f"{place}, {kind}", name, kind)
    try:
        check_policies(pool.scheduling)
    except UsageError as error:
        raise BadInput(f"{place}, scheduling", None, str(error)) from None


def _check_policy(balance: str, fleet: Fleet, place: str) -> None:
    if ":" in balance:
        _refuse_code(f"{place}, routing, balance", balance, "balance")
    cached = any(pool.scheduling.prefix_cache for pool in fleet.pools)
    try:
        ROUTING.check(Scheduling(balance=balance, prefix_cache=cached))
    except UsageError as error:
        raise BadInput(f"{place}, routing", None, str(error)) from None


def _refuse_code(place: str, name: str, kind: str) -> None:
    raise BadInput(place, name, "a file may not name code to import", f"give --{kind} {name} to stageline run")


def _check_roles(fleet: Fleet, place: str) -> None:
    """Every prompt that is prefilled apart is decoded somewhere, and no decode pool stands without prompts."""
    handed = list(handing_over(fleet))
    for pool in fleet.pools:
        model = pool.plan.model
        if pool.role == "prefill" and not any(source is pool for source, _ in handed):
            taker = (
                "a pool with the role decode" if fleet.hand_over else "[kv-transfer] and a pool with the role decode"
            )
            raise BadInput(
                pool_place(place, pool.name), "prefill", f"no pool decodes what it prefills of {model}",
                f"add {taker} and that model, or give it the role both",
            )  # fmt: skip
        if pool.role == "decode" and not any(target is pool for _, target in handed):
            raise BadInput(
                pool_place(place, pool.name), "decode", f"no pool prefills prompts of {model} for it",
                "add a pool with the role prefill and that model, or give it the role both",
            )  # fmt: skip
    if handed and fleet.hand_over is None:
        source, target = handed[0]
        raise BadInput(
            place, None, f"KV moves from pool {source.name} to pool {target.name}, and nothing says over which network",
            'add [kv-transfer] with bandwidth = "50GB/s"',
        )  # fmt: skip
    for source, target in handed:
        _check_kv(source, target, place)


def _check_kv(source: Pool, target: Pool, place: str) -> None:
    """Blocks are moved as they are: both ends cut a sequence alike and keep it in one format."""
    kinds = [pool.plan.info.get("kv_type") for pool in (source, target)]
    if None not in kinds and kinds[0] != kinds[1]:
        reason = f"its KV cache is {kinds[1]}, that of pool {source.name}, which hands over to it, {kinds[0]}"
        way_out = "plan both with the same --kv-cache-dtype"
        raise BadInput(pool_place(place, target.name), None, reason, way_out)
    pairs = (
        ("KV blocks", source.plan.block_tokens, target.plan.block_tokens, "plan both with the same --block-size"),
        (
            "hash blocks", source.scheduling.hash_block_tokens, target.scheduling.hash_block_tokens,
            "give both the same hash_block_tokens",
        ),
    )  # fmt: skip
    for what, ours, theirs, way_out in pairs:
        if ours != theirs:
            reason = f"its {what} have {theirs} tokens, those of pool {source.name}, which hands over to it, {ours}"
            raise BadInput(pool_place(place, target.name), None, reason, way_out)


def _check_hand_over(fleet: Fleet, hand_over: HandOver, place: str) -> None:
    if not any(handing_over(fleet)):
        reason = "no pool hands KV over"
        raise BadInput(place, None, reason, "leave it out, or give pools the roles prefill and decode")
    if hand_over.streamed and hand_over.order != "destination-first":
        reason = "KV can leave chunk by chunk only where it is known from the start where it goes"
        raise BadInput(f"{place}, streamed", True, reason, 'give order = "destination-first", or leave it out')
    if hand_over.decode_on_both and not any(pool.role == "both" for pool in fleet.pools):
        reason = "no pool has the role both"
        raise BadInput(f"{place}, decode-on-both", True, reason, "leave it out, or give a pool that role")


def _check_tiers(fleet: Fleet, place: str) -> None:
    """A tier keeps what prefix caches give up; settings of tiers need one."""
    for pool in fleet.pools:
        if pool.host is not None and not pool.scheduling.prefix_cache:
            reason = "host memory keeps what a prefix cache gives up, and this pool has none"
            raise BadInput(f"{pool_place(place, pool.name)}, host", None, reason, "give it one, or leave host out")
    if fleet.store is not None and not any(pool.scheduling.prefix_cache for pool in fleet.pools):
        reason = "a store keeps what prefix caches give up, and no pool has one"
        raise BadInput(f"{place}, store", None, reason, "give some pool a prefix cache, or leave the store out")
    hosts = any(pool.host is not None for pool in fleet.pools)
    plain = Fleet(pools=fleet.pools)
    for field, there in (
        ("offload", hosts or fleet.store),
        ("load", hosts or fleet.store),
        ("balance_sees_host", hosts),
    ):
        value = getattr(fleet, field)
        if value != getattr(plain, field) and not there:
            reason = "there is no tier to which this could apply"
            way_out = "give a pool host memory" + (", or the fleet a store" if field != "balance_sees_host" else "")
            raise BadInput(f"{place}, {field}", value, reason, f"{way_out}, or leave it out")
