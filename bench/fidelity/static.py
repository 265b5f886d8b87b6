"""Static batches: Splitwise, context parallelism, DeepSeek-V3 over many nodes, one request of Kimi K3."""

from pathlib import Path

from bench.fidelity.board import Made, Row
from bench.fidelity.typed import CATALOGUE, NO_HOPS, Typed, at_once, one_batch, typed

# -- Splitwise (Llama-2-70B fp16, prompt 512)

SPLITWISE: dict[
    tuple[str, int], dict[int, tuple[float, float]]
] = {  # device, tensor ranks -> sequences -> (prompt ms, token ms)
    ("h100-sxm", 8): {1: (53.4, 29.8), 8: (372, 32.5), 16: (812, 34.2), 32: (1552, 38.6), 64: (2936, 50.2)},
    ("h100-sxm", 4): {1: (59.6, 29.7), 8: (442, 31.4), 16: (874, 32.8), 32: (1726, 36.9), 64: (3520, 52.4)},
    ("h100-sxm", 2): {1: (83.8, 37.0), 8: (606, 40.4), 16: (1192, 42.0), 32: (2398, 52.3)},
    ("a100-80g", 8): {1: (94.3, 44.9), 8: (768, 46.5), 16: (2084, 50.4), 32: (3525, 53.0), 64: (7554, 71.6)},
    ("a100-80g", 4): {1: (127, 45.0), 8: (1233, 45.8), 16: (2893, 48.5), 32: (5132, 52.4), 64: (10948, 73.0)},
}
FITTED_ON = (("h100-sxm", 8), ("h100-sxm", 4))  # decode rows
HOST = "--host-floor 29ms --host-sequence 320us"
SPLITWISE_NOTES = (
    "Two constants of the host (29 ms floor, 0.32 ms per sequence) were fitted to the ten decode rows of H100 TP8 and "
    "TP4. Everything else here is unseen.",
    "On A100 the same two constants are 21-35 % too short: the framework's host was slower there, and nothing in the "
    "device's specification says so. They are no constants of the framework alone.",
    "Prompts use the catalogue's kernels: this framework reaches 17-32 % of peak, today's kernels 50-80 %.",
)


def splitwise() -> list[Row]:
    """Decode and prefill with a host floor and a host time per sequence."""
    rows: list[Row] = []
    for (device, ranks), sizes in SPLITWISE.items():
        for sequences, (prompt_ms, token_ms) in sizes.items():
            batch = one_batch(sequences, 512)
            plan = f"llama-2-70b {device} --tp {ranks} --context 520 {HOST} {batch}"
            found = typed(plan, at_once(sequences, 512, 8))
            fitted: Made = "fitted on the row" if (device, ranks) in FITTED_ON else "fitted on this family"
            for metric, measured, emulated, made in (
                ("token", token_ms, found.tpot_ms, fitted), ("prompt", prompt_ms, found.ttft_ms, "specification"),
            ):  # fmt: skip
                rows.append(
                    Row(
                        system="Llama-2-70B (Splitwise)", case=f"{device} TP{ranks}, batch {sequences}", unit="ms",
                        metric=metric, measured=measured, emulated=emulated, made=made, command=found.command,
                        target=0.15 if metric == "token" else None, note=SPLITWISE_NOTES[len(rows) % 3],
                    )
                )  # fmt: skip
    return rows


# -- Context parallelism (Llama-3 405B, FP8 FFN, TP8 per node)

RING = {(1, 128_000): 42.0, (2, 128_000): 21.0, (8, 128_000): 5.85, (16, 128_000): 3.8, (16, 10**6): 77.0}
RING_DECODE = {1: 46.26, 2: 60.23, 4: 71.31}  # ms per token at 128,000 tokens
RING_NOTES = (
    "Two constants were fitted to the five rows of prefill: 70 % of the authors' 800 TFLOPS, 0.6 ms per ring step. The "
    "decode rows have not been used.",
)


def ring() -> list[Row]:
    """Prefill over context ranks, and decode, with one share of peak and one time per ring step."""
    system, rows = "Llama-3 405B, TP8 x CP (Meta)", []
    for (ranks, tokens), real in RING.items():
        found = _ring(ranks, tokens, 1)
        rows.append(
            Row(
                system=system, case=f"CP{ranks}, {tokens:,} tokens", metric="prefill", unit="s", measured=real,
                emulated=found.ttft_ms / 1e3, made="fitted on the row", target=0.10, note=RING_NOTES[0],
                command=found.command,
            )
        )  # fmt: skip
    for ranks, real_ms in RING_DECODE.items():
        found = _ring(ranks, 128_000, 8)
        rows.append(
            Row(
                system=system, case=f"CP{ranks}, 128,000 tokens", metric="token", unit="ms", measured=real_ms,
                emulated=found.tpot_ms, made="fitted on this family", command=found.command,
            )
        )  # fmt: skip
    return rows


def _ring(ranks: int, tokens: int, output: int) -> Typed:
    plan = (
        f"llama-3.1-405b-fp8-ffn h100-meta --catalog {CATALOGUE} --tp 8 --cp {ranks} --context {tokens + output} "
        f"--ring-step 600us {one_batch(1, tokens)}"
    )
    return typed(plan, at_once(1, tokens, output))


# -- DeepSeek-V3 on H800 (InferSim's measurements)


def infersim() -> list[Row]:
    """Tokens per GPU and second, with two-batch overlap: prefill on 32 GPUs, decode on 128; two sets of constants."""
    own = "With the catalogue's constants nothing accounts for the host."
    peer = "With InferSim's published constants: 35 % of peak, 80 % of bandwidth, 30 ms a prefill, 5 ms a decode step."
    theirs = f"h800-infersim --catalog {CATALOGUE}"
    return [*_infersim("h800", "", "", "", own, None), *_infersim(theirs, "30ms", "5ms", "InferSim: ", peer, 0.15)]


def _infersim(
    device: str, prefill_host: str, decode_host: str, name: str, note: str, target: float | None
) -> list[Row]:
    context = 4096 + 1786 // 2
    shape = f"deepseek-v3 {device} --overlap"
    host = [f" --host-step {time}" if time else "" for time in (prefill_host, decode_host)]
    prefill = typed(f"{shape} --ep 32 --context 4097 {one_batch(128, 4096)}{host[0]}", at_once(128, 4096, 1))
    sequences = 128 * 128
    decode = typed(
        f"{shape} --ep 128 --context {context + 4} {one_batch(sequences, context)}{host[1]}",
        at_once(sequences, context, 3),
    )
    system = "DeepSeek-V3, H800 (InferSim's table)"
    return [
        Row(system=system, unit="tok/s/GPU", made="specification", case=f"{name}EP32, 16,384 tokens per GPU",
            metric="prefill", measured=7839, emulated=128 * 4096 / prefill.ttft_ms * 1e3 / 32, target=target,
            peers="InferSim +15.2 %", note=note, command=prefill.command),
        Row(system=system, unit="tok/s/GPU", made="specification", case=f"{name}EP128, batch 128 per GPU",
            metric="decode", measured=2324, emulated=128 / decode.tpot_ms * 1e3, target=target,
            peers="InferSim +15.1 %", note=note, command=decode.command),
    ]  # fmt: skip


# -- Kimi K3, SGLang, 8 x B300


def kimi(data: Path) -> list[Row]:
    """One request of 8,192 prompt and 1,024 output tokens: with kernels from the tables, and with fitted constants."""
    plan = f"kimi-k3 b300 --tp 8 --context 9216 --serving-engine sglang --max-num-batched-tokens 8192 {NO_HOPS}"
    kernels = "DIR/kernels/aiconfigurator kimi-k3 b300 --tp 8 --framework sglang"
    system = "Kimi K3, 8 x B300, SGLang (8192/1024, concurrency 1)"
    cases: tuple[tuple[str, Made, str], ...] = (
        ("TP8, kernels looked up", "tables", kernels), ("TP8", "specification", "")
    )  # fmt: skip
    rows = []
    for case, made, calibrate in cases:
        found = typed(plan, at_once(1, 8192, 1024), data=data, calibrate=calibrate)
        rows += [
            Row(system=system, case=case, unit="ms", metric=metric, measured=measured, emulated=emulated,
                target=0.15, made=made, command=found.command)
            for metric, measured, emulated in (("TTFT", 378, found.ttft_ms), ("TPOT", 8.51, found.tpot_ms))
        ]  # fmt: skip
    return rows
