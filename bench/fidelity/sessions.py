"""vLLM 0.15 on H100: conversations behind shared system prompts, with prefix caching."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import takewhile
from statistics import median

import msgspec

from bench.fidelity.board import Row
from bench.fidelity.runs import RunOutput, run, vllm
from stageline.catalog.loader import Catalog
from stageline.engine.types import Request
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.workload.arrivals import poisson_times

CATALOG = Catalog()
SYSTEM = "vLLM 0.15 on H100, conversations behind shared system prompts"
FRONT_END_S = (
    0.008  # HTTP, tokenizer, hand-over to the scheduler and detokenizer of a request: assumed, for all systems
)
BLOCK = 16
TARGETS = {"E2E": 0.12, "TTFT": 0.20, "ITL": 0.12}
SHORTENED = 4  # the measured load stages are this many times as long; means settle long before
PEERS = (
    "specification-only roofline 52 / 173 / 55 %, tuned simulator 11.0 / 9.7 / 9.9 %, AIConfigurator 17 / 549 / 15 %"
)


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One measured system: its settings, its workload, and the measured means in ms."""

    name: str
    model: str
    tp: int
    batched_tokens: int
    blocks: int
    prompts: int
    users: int  # per system prompt
    system: int
    question: int
    answer: int
    stages: tuple[tuple[Fraction, int], ...]  # (requests per second, seconds)
    e2e_ms: float
    ttft_ms: float
    itl_ms: float


TWO_STAGES = ((Fraction(5, 2), 600), (Fraction(6), 600))
SYSTEMS = (
    System(
        name="Llama-3.1-70B TP4", model="llama-3.1-70b", tp=4, batched_tokens=8192, blocks=30_251, prompts=9, users=5,
        system=100, question=447, answer=248, stages=TWO_STAGES, e2e_ms=4502, ttft_ms=53.7, itl_ms=18.3,
    ),
    System(
        name="Mistral-Nemo-12B TP2", model="mistral-nemo-12b", tp=2, batched_tokens=1024, blocks=48_009, prompts=9,
        users=5, system=100, question=447, answer=248, stages=TWO_STAGES, e2e_ms=1534, ttft_ms=21.7, itl_ms=6.1,
    ),
    System(
        name="Qwen2.5-7B TP1, 6/s", model="qwen2.5-7b", tp=1, batched_tokens=2048, blocks=65_352, prompts=10, users=5,
        system=150, question=600, answer=251, stages=((Fraction(6), 1200),), e2e_ms=1772, ttft_ms=26.7, itl_ms=7.0,
    ),
    System(
        name="Qwen2.5-7B TP1, 1/s", model="qwen2.5-7b", tp=1, batched_tokens=1024, blocks=65_368, prompts=23, users=1,
        system=100, question=934, answer=1448, stages=((Fraction(1), 1200),), e2e_ms=10662, ttft_ms=30.8, itl_ms=7.4,
    ),
)  # fmt: skip


def arrivals(system: System) -> Iterator[int]:
    """Poisson arrivals, one load stage after the other."""
    start_ns = 0
    for number, (rate, seconds) in enumerate(system.stages):
        length_ns = seconds * 10**9 // SHORTENED
        yield from (start_ns + t for t in takewhile(length_ns.__gt__, poisson_times(rate, number)))
        start_ns += length_ns


def requests(system: System, turns: int) -> list[Request]:
    """Request i is the next turn of user i mod (prompts x users), who starts a new conversation after `turns`."""
    users = system.prompts * system.users
    found = []
    for i, arrival_ns in enumerate(arrivals(system)):
        user, conversation, turn = i % users, i // users // turns, i // users % turns
        prompt = system.system + (turn + 1) * system.question + turn * system.answer
        ids = [_identity(user % system.prompts, b) for b in range(system.system // BLOCK)]
        ids += [_identity(1_000 + user + users * conversation, b) for b in range(len(ids), -(-prompt // BLOCK))]
        found.append(
            Request(
                index=i, arrival_ns=arrival_ns, prompt_tokens=prompt, output_tokens=system.answer,
                max_output_tokens=system.answer, hash_ids=tuple(ids),
            )
        )  # fmt: skip
    return found


def _identity(text: int, block: int) -> int:
    return text << 24 | block


def _plan(system: System) -> Plan:
    options = PlanOptions(tensor_parallel=system.tp, hop_latency_ns=0, hop_bytes_per_s=10**15)
    plan = make_plan(CATALOG.model(system.model).spec, CATALOG.device("h100-sxm").device, options).plan
    (stage,) = plan.stages
    stage = msgspec.structs.replace(stage, kv_budget_bytes=system.blocks * stage.kv_block_bytes)
    return msgspec.structs.replace(plan, stages=(stage,))


def emulate(system: System, turns: int) -> RunOutput:
    """Emulate a system with its own settings."""
    plan = _plan(system)
    scheduling = msgspec.structs.replace(
        vllm(plan, max_num_seqs=128, batched_tokens=system.batched_tokens), prefix_cache=True, hash_block_tokens=BLOCK
    )
    return run(plan, scheduling, requests(system, turns))


def compare(turns: int) -> list[Row]:
    """Twelve rows, for conversations of `turns` turns."""
    found: list[Row] = []
    for system in SYSTEMS:
        ttft, itl, e2e = emulate(system, turns).means_s()
        ours = {"E2E": (e2e + FRONT_END_S) * 1e3, "TTFT": (ttft + FRONT_END_S) * 1e3, "ITL": itl * 1e3}
        real = {"E2E": system.e2e_ms, "TTFT": system.ttft_ms, "ITL": system.itl_ms}
        found += [
            Row(system=SYSTEM, case=system.name, metric=metric, unit="ms", measured=real[metric], emulated=ours[metric],
                basis="specification")
            for metric in TARGETS
        ]  # fmt: skip
    return found


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
        f"{FRONT_END_S * 1e3:g} ms of front end per request (assumed); stages of load a quarter as long as measured.",
    )
    return [msgspec.structs.replace(row, note=notes[i % len(notes)]) for i, row in enumerate(one)]
