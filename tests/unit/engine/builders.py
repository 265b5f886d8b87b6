"""Small values for the engine's unit tests."""

from stageline.cost.entries import Affine
from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Microbatch
from stageline.engine.types import RequestRecord
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit

NS = 1_000_000_000


def plan(
    route: tuple[int, ...] = (0, 1),
    *,
    service_ns: int = 100,
    latency_ns: int = 10,
    bytes_per_token: int = 1,
    jitter_ns: int = 0,
    budget_bytes: int = 1 << 20,
    block_bytes: int = 1,
    state_bytes: int = 0,
    microbatch: int = 4,
    credits_: int = 4,
    replicas: int = 1,
) -> Plan:
    """Equal stages and links; one byte takes one ns."""
    stages = range(max(route) + 1)
    return Plan(
        model="m",
        device="d",
        stages=tuple(
            StagePlan(
                name=f"stage-{s}",
                layers=tuple(v for v, at in enumerate(route) if at == s),
                kv_budget_bytes=budget_bytes,
                kv_block_bytes=block_bytes,
                state_bytes=state_bytes,
            )
            for s in stages
        ),
        visits=tuple(Visit(stage=s, layers=(v,), cost=0, min_service_ns=service_ns) for v, s in enumerate(route)),
        links=tuple(
            LinkPlan(latency_ns=latency_ns, bytes_per_s=NS, bytes_per_token=bytes_per_token, jitter_ns=jitter_ns)
            for _ in range(len(route) + 1)
        ),
        costs=(Affine(base_ns=service_ns),),
        defaults=Defaults(microbatch=microbatch, credits=credits_, batched_tokens=64),
        block_tokens=4,
        replicas=replicas,
    )


def microbatch(
    sequence: int = 0,
    *,
    tokens: int = 1,
    stamps: tuple[int, int, int, int] = (0, 0, 0, 0),
    releases: tuple[int, ...] = (),
    grants: tuple[tuple[int, int, int], ...] = (),
) -> Microbatch:
    """A decode microbatch; `stamps` are dispatch, work_since, empty_since, credit_since."""
    load = BatchTotals(tokens, tokens, tokens, tokens, sampled=tokens)
    return Microbatch(sequence, load, *stamps, releases, grants)


class Seen:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.tokens: list[tuple[int, int, int | None]] = []

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        self.tokens.append((index, now_ns, since_ns))

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self.records.append(record)
