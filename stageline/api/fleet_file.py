"""The fleet file as people write it, in TOML: its tables become the pools of a `Fleet`. docs/fleets.md has the format.

Paths in it are relative to the file. Flags are those of `stageline plan` and `stageline run`, read by a `FlagReader`.
"""

import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from stageline.api.keywords import PlanKeywords
from stageline.api.lookup import looks_like_path
from stageline.api.planning import find_inputs, plan_inputs
from stageline.api.scheduling import settle
from stageline.api.serving import engine_scheduling
from stageline.catalog.decode import convert, parse_toml
from stageline.catalog.loader import Catalog
from stageline.engine.fleet import Fleet, HandOver, LoadPolicy, Offload, Order, Pool, Role, Tier
from stageline.engine.fleet_check import check_fleet, pool_place
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput, DoesNotFit, UsageError
from stageline.plan.parse import parse_plan
from stageline.plan.replicas import with_replicas
from stageline.plan.schema import Plan
from stageline.report.slo import parse_slo
from stageline.runtime.plans import read_plan_file
from stageline.units import parse_duration_ns, parse_rate_bytes_per_s, parse_size_bytes


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"):
    """The base of the file's tables, which refuse unknown keys."""


class PoolTable(Table, frozen=True):
    """One [[pool]]."""

    name: str
    role: Role = "both"
    plan: str | None = None  # path of a plan file; or else model and device
    model: str | None = None  # as stageline plan takes it
    device: str | None = None
    flags: str = ""  # of stageline plan
    replicas: int | None = None  # None: the plan's
    engine_profile: str | None = None  # serving engine that schedules in place of the plan's
    scheduling: str = ""  # flags of stageline run
    slo: str | None = None  # of slo batching, such as tpot=50ms
    egress: str | None = None  # bandwidth of a replica's port for KV that leaves; None: that of [kv-transfer]
    ingress: str | None = None
    port_latency: str | None = None  # None: that of [kv-transfer]
    host: "TierTable | None" = None  # host memory of each replica, below its prefix cache


class TierTable(Table, frozen=True):
    """A tier: `host` of a pool, or [store]."""

    capacity: str
    bandwidth: str | None = None  # each way, unless read or write says otherwise
    read: str | None = None
    write: str | None = None
    latency: str | None = None  # of a read


class TiersTable(Table, frozen=True):
    """[tiers]: when KV goes down, and when it is loaded."""

    offload: Offload = "evict"
    load: LoadPolicy = "cheaper"
    balance_sees_host: bool = False


class KvTransferTable(Table, frozen=True):
    """[kv-transfer]: the network between pools, and how KV goes over it."""

    network: str | None = None  # catalogue name; what it says counts unless bandwidth or latency say otherwise
    bandwidth: str | None = None  # of a replica's port, each way
    latency: str | None = None
    order: Order = "source-first"
    first_token: Literal["prefill", "decode"] = "prefill"
    blocks: Literal["all", "missing"] = "all"
    streamed: bool = False
    local_prefill_tokens: int = 0
    decode_on_both: bool = False


class RoutingTable(Table, frozen=True):
    """[routing]: the router that all pools share."""

    balance: str = "round-robin"
    front_end: str | None = None  # None: the serving engine's


class FleetTables(Table, frozen=True):
    """The whole file."""

    pool: tuple[PoolTable, ...]
    kv_transfer: KvTransferTable | None = None
    routing: RoutingTable = RoutingTable()
    store: TierTable | None = None  # shared by all replicas
    tiers: TiersTable = TiersTable()


class PlanWords(NamedTuple):
    """Flags of `stageline plan`: keywords of `plan_model`, and the directories of --catalog."""

    keywords: PlanKeywords
    catalog: tuple[Path, ...] = ()


class RunWords(NamedTuple):
    """Flags of `stageline run` that say how it schedules."""

    given: Mapping[str, Any]  # as `SchedulingKeywords`
    engine: str | None = None
    catalog: tuple[Path, ...] = ()


class FlagReader(Protocol):
    """Reads flags as the commands do. Both raise BadInput at `place`."""

    def plan(self, text: str, place: str) -> PlanWords:
        """Flags of `stageline plan`."""
        ...

    def scheduling(self, text: str, place: str) -> RunWords:
        """Scheduling flags of `stageline run`."""
        ...


def read_fleet_toml(path: Path, data: bytes, flags: FlagReader) -> Fleet:
    """The fleet that a TOML file describes, every pool planned and all checked.

    Raises BadInput with the place in the file, and DoesNotFit naming the pool.
    """
    place = f"fleet {path}"
    tables = convert(parse_toml(data, place), FleetTables, place)
    reader = _Reader(path.parent, place, flags)
    pools = [reader.pool(table) for table in tables.pool]
    routing = tables.routing
    front_end = routing.front_end
    fleet = Fleet(
        pools=tuple(_shared(pool) for pool in pools),
        hand_over=None if tables.kv_transfer is None else hand_over(tables.kv_transfer, f"{place}, kv-transfer"),
        balance=routing.balance,
        front_end_ns=_common_front_end(pools, place)
        if front_end is None
        else parse_duration_ns(front_end, f"{place}, routing, front-end"),
        store=None if tables.store is None else tier(tables.store, f"{place}, store"),
        offload=tables.tiers.offload,
        load=tables.tiers.load,
        balance_sees_host=tables.tiers.balance_sees_host,
    )
    check_fleet(fleet, place)
    return fleet


def named_plans(path: Path) -> list[Path]:
    """The plan files that a TOML file names; none for another file, or one that can't be read."""
    try:
        tables = tomllib.loads(path.read_text()).get("pool", []) if path.suffix == ".toml" else []
        names = [table.get("plan") for table in tables]
    except (OSError, ValueError, AttributeError, TypeError):
        return []
    return [path.parent / name for name in names if isinstance(name, str)]


class _Reader:
    """Makes pools of a file's tables. `folder` is where its paths begin."""

    def __init__(self, folder: Path, place: str, flags: FlagReader) -> None:
        self._folder, self._place, self._flags = folder, place, flags

    def pool(self, table: PoolTable) -> Pool:
        """The pool of a table, with its plan."""
        place = pool_place(self._place, table.name)
        plan = self._plan(table, place)
        ports = {
            f"{way}_bytes_per_s": parse_rate_bytes_per_s(text, f"{place}, {way}")
            for way, text in (("egress", table.egress), ("ingress", table.ingress))
            if text is not None
        }
        if table.port_latency is not None:
            ports["port_latency_ns"] = parse_duration_ns(table.port_latency, f"{place}, port-latency")
        parts = {"name": table.name, "plan": plan, "role": table.role, "scheduling": self._settings(table, plan, place)}
        if table.host is not None:
            parts["host"] = tier(table.host, f"{place}, host")
        return convert(parts | ports, Pool, place)

    def _plan(self, table: PoolTable, place: str) -> Plan:
        if table.plan is not None:
            given = [name for name in ("model", "device", "flags") if getattr(table, name)]
            if given:
                raise BadInput(place, None, f"{given[0]} beside plan", "give a plan file, or what a plan is made from")
            plan = read_plan_file(self._folder / table.plan)
        else:
            plan = self._planned(table, place)
        if table.replicas is None:
            return plan
        if plan.replicas not in (1, table.replicas) and table.plan is None:
            raise BadInput(f"{place}, replicas", table.replicas, f"its flags say {plan.replicas}", "say it once")
        try:
            return with_replicas(plan, table.replicas)
        except BadInput as error:
            raise BadInput(f"{place}, replicas", table.replicas, error.reason, error.hint) from None

    def _planned(self, table: PoolTable, place: str) -> Plan:
        if table.model is None or table.device is None:
            missing = "model" if table.model is None else "device"
            raise BadInput(place, None, f"{missing} is missing", 'give plan = "FILE", or model and device')
        words = self._flags.plan(table.flags, f"{place}, flags")
        keywords, folders = words.keywords, [self._folder / folder for folder in words.catalog]
        for name in ("profile", "serving_engine"):
            if text := keywords.get(name):
                keywords[name] = self._path(str(text))
        command = shlex.join(["stageline", "plan", table.model, table.device, *shlex.split(table.flags)])
        try:
            inputs = find_inputs(self._path(table.model), table.device, keywords, folders)
            return parse_plan(plan_inputs(inputs, command).plan.canonical(), place)  # as a file would have it
        except DoesNotFit as error:
            raise DoesNotFit(f"{place}: {error}") from None
        except UsageError as error:
            raise BadInput(place, None, str(error)) from None

    def _settings(self, table: PoolTable, plan: Plan, place: str) -> Scheduling:
        words = self._flags.scheduling(table.scheduling, f"{place}, scheduling")
        for name, key in (("balance", "balance"), ("front_end_ns", "front-end")):
            if name in words.given:
                raise BadInput(
                    f"{place}, scheduling", table.scheduling, f"{key} is a setting of the router, which pools share",
                    f"give {key} in [routing]",
                )  # fmt: skip
        if words.engine is not None and table.engine_profile is not None:
            raise BadInput(f"{place}, engine-profile", table.engine_profile, "scheduling names one, too", "say it once")
        engine = words.engine or table.engine_profile
        slo = None if table.slo is None else parse_slo(table.slo, f"{place}, slo")
        try:
            folders = [self._folder / folder for folder in words.catalog]
            base = engine_scheduling(plan, None if engine is None else self._path(engine), folders)
            return settle(base, words.given, plan, slo=slo)
        except UsageError as error:
            raise BadInput(f"{place}, scheduling", table.scheduling or None, str(error)) from None

    def _path(self, text: str) -> str:
        """A path as seen from here; a name as it is."""
        beside = self._folder / text
        return str(beside) if (looks_like_path(text) or text.endswith(".toml")) and beside.exists() else text


def _common_front_end(pools: list[Pool], place: str) -> int:
    """The front end of the pools at which requests arrive, which share the router. Raises BadInput if they differ."""
    times = {pool.scheduling.front_end_ns: pool.name for pool in pools if pool.role != "decode"}
    if len(times) > 1:
        names = " and ".join(list(times.values())[:2])
        reason = f"the serving engines of the pools {names} take different times until the router sees a request"
        raise BadInput(place, None, reason, 'say which in [routing], such as front-end = "8ms"')
    return next(iter(times), 0)


def _shared(pool: Pool) -> Pool:
    """The pool without what belongs to the router."""
    return msgspec.structs.replace(pool, scheduling=msgspec.structs.replace(pool.scheduling, front_end_ns=0))


def parse_transfer(text: str, place: str) -> KvTransferTable:
    """ "network=ndr-infiniband,order=source-first" as the keys of [kv-transfer]. Raises BadInput at `place`."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not value or key.strip() in found:
            reason = "given twice" if key.strip() in found else "not of the form key=value"
            raise BadInput(place, part, reason, "write it like network=ndr-infiniband,order=destination-first")
        found[key.strip()] = value.strip()
    try:
        return msgspec.convert(found, KvTransferTable, strict=False)
    except msgspec.ValidationError as error:
        keys = ", ".join(KvTransferTable.__struct_encode_fields__)
        raise BadInput(place, text, str(error), f"give keys of [kv-transfer]: {keys}") from None


def tier(table: TierTable, place: str) -> Tier:
    """A place for KV below prefix caches. Raises BadInput at `place`."""
    rates = {}
    for way, text in (("read", table.read or table.bandwidth), ("write", table.write or table.bandwidth)):
        if text is None:
            raise BadInput(place, None, f"{way} is missing", f'give bandwidth = "25GB/s", or {way}')
        rates[f"{way}_bytes_per_s"] = parse_rate_bytes_per_s(text, f"{place}, {way}")
    return Tier(
        capacity_bytes=parse_size_bytes(table.capacity, f"{place}, capacity"),
        latency_ns=0 if table.latency is None else parse_duration_ns(table.latency, f"{place}, latency"),
        **rates,
    )


def hand_over(table: KvTransferTable, place: str) -> HandOver:
    """How KV moves. Raises BadInput at `place`."""
    kept = ("order", "first_token", "streamed", "decode_on_both")
    given: dict[str, Any] = {name: getattr(table, name) for name in kept}
    given["local_prefill_tokens"] = table.local_prefill_tokens
    given["transfer"] = table.blocks
    if table.network is not None:
        network = Catalog().link(table.network).network
        given |= {"bytes_per_s": network.bytes_per_s, "latency_ns": network.latency_ns}
    if table.bandwidth is not None:
        given["bytes_per_s"] = parse_rate_bytes_per_s(table.bandwidth, f"{place}, bandwidth")
    if table.latency is not None:
        given["latency_ns"] = parse_duration_ns(table.latency, f"{place}, latency")
    if "bytes_per_s" not in given:
        raise BadInput(place, None, "bandwidth is missing", 'give bandwidth = "50GB/s", or a network of the catalogue')
    return convert(given, HandOver, place)
