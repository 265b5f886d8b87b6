"""Rows of the scoreboard as a user types them: `stageline plan`, then `stageline run`."""

import contextlib
import io
import json
import shlex
import tempfile
from functools import cache
from pathlib import Path

import msgspec

from stageline.cli.main import invoke

CATALOGUE = "bench/fidelity/catalogue"
HERE = Path(__file__).resolve().parents[2]
NO_HOPS = "--hop-latency 0ns --hop-bandwidth 1000000GB/s"


class Typed(msgspec.Struct, frozen=True):
    """What two commands printed. Times in ms."""

    command: str
    ttft_ms: float
    tpot_ms: float
    itl_p50_ms: float
    e2e_ms: float
    ttft_p50_ms: float
    ttft_p90_ms: float
    output_tokens_per_s: float


@cache
def typed(plan: str, workload: str, flags: str = "", data: Path | None = None, calibrate: str = "") -> Typed:
    """Plan and run, with a profile made by `calibrate` if given; DIR is `data`. Raises RuntimeError with complaints."""
    run = f"--workload '{workload}'" + (f" {flags}" if flags else "")
    with tempfile.TemporaryDirectory() as folder:
        path, profile = f"{folder}/plan.json", ""
        if calibrate:
            call(f"calibrate {calibrate.replace('DIR', str(data))} -o {folder}/profile.json")
            profile = f" --profile {folder}/profile.json"
        call(f"plan {plan.replace(CATALOGUE, str(HERE / CATALOGUE)).replace('DIR', str(data))}{profile} -o {path}")
        found = json.loads(call(f"run {path} {run} --json"))
    command = f"stageline plan {plan} -o plan.json && stageline run plan.json {run}"
    if calibrate:
        command = f"stageline calibrate {calibrate} -o profile.json && " + command.replace(
            " -o plan.json", " --profile ./profile.json -o plan.json"
        )
    means = {name: found[f"{name}_s"]["mean"] or 0.0 for name in ("ttft", "tpot", "e2e")}
    return Typed(
        command=command,
        ttft_ms=means["ttft"] * 1e3,
        tpot_ms=means["tpot"] * 1e3,
        itl_p50_ms=(found["itl_s"]["p50"] or 0.0) * 1e3,
        e2e_ms=means["e2e"] * 1e3,
        ttft_p50_ms=found["ttft_s"]["p50"] * 1e3,
        ttft_p90_ms=found["ttft_s"]["p90"] * 1e3,
        output_tokens_per_s=found["output_tokens_per_s"],
    )


def call(words: str) -> str:
    """One command; what it printed on stdout. Raises RuntimeError with what it complained of."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(shlex.split(words))
    if code:
        raise RuntimeError(f"stageline {words}: {err.getvalue() or out.getvalue()}")
    return out.getvalue()


def at_once(sequences: int, prompt: int, output: int) -> str:
    """A static batch: so many users, each of whom asks once."""
    return f"closed:users={sequences},requests={sequences},input={prompt},output={output}"


def one_batch(sequences: int, prompt: int) -> str:
    """One microbatch with all prompts, then decode steps of all sequences; no serving engine's host or graphs."""
    tokens = max(sequences * prompt, sequences)
    return f"--serving-engine pipeline --microbatch {sequences} --batched-tokens {tokens} {NO_HOPS}"
