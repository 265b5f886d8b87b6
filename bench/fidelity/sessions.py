"""vLLM 0.15 on H100: conversations behind shared system prompts, with prefix caching."""

from statistics import median

import msgspec

from bench.fidelity.board import Row
from bench.fidelity.typed import NO_HOPS, typed

SYSTEM = "vLLM 0.15 on H100, conversations behind shared system prompts"
FRONT_END = "8ms"  # HTTP, tokenizer, hand-over to the scheduler and detokenizer: assumed, for all systems
TARGETS = {"E2E": 0.07, "TTFT": 0.11, "ITL": 0.07}  # of the medians
PEERS = (
    "specification-only roofline 52 / 173 / 55 %, tuned simulator 11.0 / 9.7 / 9.9 %, AIConfigurator 17 / 549 / 15 %"
)


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One measured system: its settings, its workload, and the measured means in ms. Loads last a quarter as long."""

    name: str
    plan: str
    sessions: str
    e2e_ms: float
    ttft_ms: float
    itl_ms: float


TWO_LOADS = "sessions:system_prompts=9,users=5,system=100,question=447,output=248,rate=2.5+6,seconds=150"
SYSTEMS = (
    System(
        name="Llama-3.1-70B TP4", e2e_ms=4502, ttft_ms=53.7, itl_ms=18.3, sessions=TWO_LOADS,
        plan="llama-3.1-70b h100-sxm --tp 4 --max-num-batched-tokens 8192 --num-gpu-blocks-override 30251",
    ),
    System(
        name="Mistral-Nemo-12B TP2", e2e_ms=1534, ttft_ms=21.7, itl_ms=6.1, sessions=TWO_LOADS,
        plan="mistral-nemo-12b h100-sxm --tp 2 --max-num-batched-tokens 1024 --num-gpu-blocks-override 48009",
    ),
    System(
        name="Qwen2.5-7B TP1, 6/s", e2e_ms=1772, ttft_ms=26.7, itl_ms=7.0,
        sessions="sessions:system_prompts=10,users=5,system=150,question=600,output=251,rate=6,seconds=300",
        plan="qwen2.5-7b h100-sxm --max-num-batched-tokens 2048 --num-gpu-blocks-override 65352",
    ),
    System(
        name="Qwen2.5-7B TP1, 1/s", e2e_ms=10662, ttft_ms=30.8, itl_ms=7.4,
        sessions="sessions:system_prompts=23,users=1,system=100,question=934,output=1448,rate=1,seconds=300",
        plan="qwen2.5-7b h100-sxm --max-num-batched-tokens 1024 --num-gpu-blocks-override 65368",
    ),
)  # fmt: skip


def compare(turns: int) -> list[Row]:
    """Twelve rows, for conversations of `turns` turns."""
    rows: list[Row] = []
    for system in SYSTEMS:
        plan = f"{system.plan} --max-num-seqs 128 --front-end {FRONT_END} {NO_HOPS}"
        found = typed(plan, f"{system.sessions},turns={turns}")
        rows += [
            Row(system=SYSTEM, case=system.name, metric=metric, unit="ms", measured=real, emulated=ours,
                made="specification", command=found.command)
            for metric, real, ours in (
                ("E2E", system.e2e_ms, found.e2e_ms), ("TTFT", system.ttft_ms, found.ttft_ms),
                ("ITL", system.itl_ms, found.tpot_ms),
            )
        ]  # fmt: skip
    return rows


def medians(rows: list[Row]) -> dict[str, float]:
    """Median absolute error by metric."""
    return {metric: median(abs(row.error) for row in rows if row.metric == metric) for metric in TARGETS}


def both() -> list[Row]:
    """Conversations of one turn, and in a note the medians with five."""
    one, five = compare(1), medians(compare(5))
    text = ", ".join(
        f"{metric} {error:.1%} (target {TARGETS[metric]:.0%}: {'met' if error < TARGETS[metric] else 'missed'})"
        for metric, error in medians(one).items()
    )
    notes = (
        f"Median absolute errors: {text}. Of others, in the order E2E / TTFT / ITL: {PEERS}.",
        "Every conversation has one turn here, an assumption that decides the result: under it prompts have the length "
        f"that is published. With five turns the medians are {' / '.join(f'{e:.1%}' for e in five.values())}.",
        f"{FRONT_END} of front end per request (assumed); stages of load a quarter as long as measured.",
    )
    return [msgspec.structs.replace(row, note=notes[i % len(notes)]) for i, row in enumerate(one)]
