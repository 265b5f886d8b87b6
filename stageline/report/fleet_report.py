"""The report of a fleet: what each pool holds, and what its KV transfers take."""

import msgspec

from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.fleet_check import handing_over
from stageline.engine.ports import moving_ns
from stageline.engine.served import port_of
from stageline.plan.options import DEFAULT_CONTEXT_TOKENS
from stageline.plan.report import device_text
from stageline.plan.schema import Plan
from stageline.report.pools import RunPools
from stageline.report.settings import plan_label

PROMPTS_TOKENS = (1024, 8192)  # of the prompts whose transfer is timed


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pool, its replicas together unless a name says each."""

    name: str
    role: str
    model: str
    device: str
    replicas: int
    devices: int
    divided: str  # how a replica divides its devices, and its weights: "TP4, fp8"
    serving_engine: str
    kv_bytes: int  # that ledgers may hold
    context_tokens: int  # that the plan was sized for
    requests: int  # of that context that fit
    command: str  # that makes its plan; "" if the plan does not say


class PromptTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """The KV of one prompt on its way, alone on both ports."""

    prompt_tokens: int
    bytes: int
    time_ns: int  # on the port, and the latency


class TransferRow(msgspec.Struct, frozen=True, kw_only=True):
    """KV from one pool to another."""

    source: str
    target: str
    bytes_per_token: int  # of caches that are kept whole; rounded up
    bytes_per_s: int  # the lesser bandwidth of the two ports
    prompts: tuple[PromptTransfer, ...]


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `stageline fleet --json` prints."""

    label: str  # such as "2 x prefill TP4 + 2 x decode TP8"
    replicas: int
    devices: int
    balance: str
    front_end_ns: int
    pools: tuple[PoolRow, ...]
    transfers: tuple[TransferRow, ...]
    digest: str


def fleet_report(fleet: Fleet) -> FleetReport:
    """Summarise a fleet."""
    hand_over = fleet.hand_over
    pairs = list(handing_over(fleet)) if hand_over else []
    return FleetReport(
        label=RunPools(fleet).label(),
        replicas=sum(pool.plan.replicas for pool in fleet.pools),
        devices=sum(pool.plan.devices for pool in fleet.pools),
        balance=fleet.balance,
        front_end_ns=fleet.front_end_ns,
        pools=tuple(_row(pool) for pool in fleet.pools),
        transfers=tuple(_transfer(hand_over, *pair) for pair in pairs) if hand_over else (),
        digest=fleet.digest(),
    )


def prompt_bytes(plan: Plan, tokens: int) -> int:
    """KV and state of a prompt, all stages together: what a hand-over moves (rule 11)."""
    blocks = -(-tokens // plan.block_tokens)
    return sum(stage.kv_bytes(blocks, 1) for stage in plan.stages)


def _row(pool: Pool) -> PoolRow:
    plan = pool.plan
    context = int(plan.info.get("context_tokens", 0)) or plan.max_context_tokens or DEFAULT_CONTEXT_TOKENS
    blocks = -(-context // plan.block_tokens)
    requests = min(stage.kv_budget_bytes // max(1, stage.kv_bytes(blocks, 1)) for stage in plan.stages)
    return PoolRow(
        name=pool.name,
        role=pool.role,
        model=plan.model,
        device=device_text(plan),
        replicas=plan.replicas,
        devices=plan.devices,
        divided=plan_label({name: value for name, value in plan.info.items() if name != "dp"}),
        serving_engine=plan.serving.engine if plan.serving else "",
        kv_bytes=plan.replicas * sum(stage.kv_budget_bytes for stage in plan.stages),
        context_tokens=context,
        requests=plan.replicas * requests,
        command=str(plan.info.get("command", "")),
    )


def _transfer(hand_over: HandOver, source: Pool, target: Pool) -> TransferRow:
    out, into = port_of(source, hand_over), port_of(target, hand_over)
    rate = out.rate_to(into)
    block = sum(stage.kv_block_bytes for stage in source.plan.stages)
    prompts = []
    for tokens in PROMPTS_TOKENS:
        size = prompt_bytes(source.plan, tokens)
        time_ns = moving_ns(size, rate) + out.latency_to(into)
        prompts.append(PromptTransfer(prompt_tokens=tokens, bytes=size, time_ns=time_ns))
    return TransferRow(
        source=source.name,
        target=target.name,
        bytes_per_token=-(-block // source.plan.block_tokens),
        bytes_per_s=rate,
        prompts=tuple(prompts),
    )
