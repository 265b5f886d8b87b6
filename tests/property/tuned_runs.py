"""What `tune` says about random runs: whoever follows it gets what it says, and it finds what a grid finds."""

import io
import random
import re
import shlex
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import stageline
from stageline.api.moves import Move, moves
from stageline.api.rerunning import StoredRun, Variation, run_variation, stored_run
from stageline.cli.main import invoke
from stageline.engine.settings import plan_scheduling
from stageline.report.tuned import OBJECTIVES, Figures, Objective, TuneResult, figures_of, gain

WORTH = 0.1  # gain of a grid from which tuning must find most of it
MOST = 0.8  # of that gain
GRID = {  # at least four values of every number that tune may move, besides those that it tries itself
    "batched_tokens": (32, 64, 96, 192, 768, 8192),
    "microbatch": (1, 2, 3, 6, 12, 24, 48, 96),
    "credits": (1, 2, 3, 6, 12, 24, 48, 96),
    "max_running": (1, 2, 3, 6, 12, 24, 48, 96),
    "max_num_seqs": (1, 2, 3, 6, 12, 24, 48, 96),
}


def random_run(number: int, directory: Path) -> stageline.RunResult:
    """Run `number`: small clusters, at any load, well or badly set."""
    draw = random.Random(number)
    plan = stageline.plan_model(
        draw.choice(["llama-3.1-8b", "qwen2.5-7b"]), draw.choice(["h100-sxm", "a100-80g"]),
        devices=draw.choice([1, 2, 4]), replicas=draw.choice([1, 2]),
    )  # fmt: skip
    sizes = f"input={draw.choice([256, 1024, 2048])},output={draw.choice([8, 32])}"
    arrivals = draw.choice([f"closed:users={draw.choice([4, 16])}", f"poisson:rate={draw.choice([10, 40])}"])
    asked = {"microbatch": draw.choice([1, 4, 32]), "batched_tokens": draw.choice([128, 512, 4096])}
    if draw.random() < 0.3:
        asked["max_running"] = draw.choice([2, 8])
    elif draw.random() < 0.3:  # as vLLM is started
        asked = {"max_num_seqs": draw.choice([1, 4]), "batched_tokens": asked["batched_tokens"]}
    return stageline.run(
        plan, f"{arrivals},requests={draw.choice([32, 64, 96])},{sizes}", seed=number, slo="ttft=200ms,tpot=20ms",
        output=directory, **asked,
    )  # type: ignore[arg-type]  # fmt: skip


def objective_of(number: int) -> Objective:
    """Every objective in turn but cost, which settings move as they move throughput."""
    return [o for o in OBJECTIVES if o != "cost"][number % 4]


def tuning_keeps_its_word(number: int) -> TuneResult:
    """One random run, tuned: its advice is followed, and its best is held against a grid of single settings."""
    with tempfile.TemporaryDirectory() as name:
        directory, objective = Path(name), objective_of(number)
        before = random_run(number, directory / "run").summary
        found = stageline.tune(directory / "run", objective=objective)
        assert found.before == figures_of(before, found.before.devices)
        stored = stored_run(directory / "run")
        advice_is_true(found, stored, directory)
        best = max(grid_gains(stored, found.before, objective))
        ours = 0.0 if found.best is None else gain(found.before, found.best.figures, objective) or 0.0
        assert best < WORTH or ours >= MOST * best, f"{objective}: {ours:.3f} of the grid's {best:.3f}"
        return found


def advice_is_true(found: TuneResult, stored: StoredRun, directory: Path) -> None:
    """Every printed line and the command are followed by the command line; none makes the objective worse."""
    after = follow(found.command, directory / "best")
    assert after == (found.before if found.best is None else found.best.figures)
    assert found.best is None or (gain(found.before, after, found.objective) or 0) > 0
    for number, advised in enumerate(found.helped()):
        plain = stored.rerun.command(str(stored.directory / "plan.json"), plan_scheduling(stored.plan))
        again = follow(changed(plain, advised.flags), directory / str(number))
        assert again == advised.figures
        assert (gain(found.before, again, found.objective) or 0) > 0


def follow(command: str, out: Path) -> Figures:
    """What a user gets who pastes the command."""
    words = shlex.split(command)
    assert words[0] == "stageline"
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        code = invoke([*words[1:], "-o", str(out)])
    assert code in (0, 3), command
    done = stageline.read_run(out)
    return figures_of(done.summary, done.plan.devices)


def changed(command: str, flags: str) -> str:
    """The command with these flags in place of those that it had of the same limits."""
    same = {"--max-num-seqs": ["--max-running"], "--max-running": ["--max-num-seqs"]}
    names = re.findall(r"--\S+", flags)
    for name in [*names, *(other for named in names for other in same.get(named, []))]:
        command = re.sub(rf" {name} \S+", "", command)
    return f"{command} {flags}"


def grid_gains(stored: StoredRun, before: Figures, objective: Objective) -> list[float]:
    """The gain of every value of every setting, all tried in full."""
    wider = [Move(name, value) for name, values in GRID.items() for value in values]
    tried = {*moves(stored.plan, stored.rerun.scheduling, stored.summary, stored.stages), *wider}
    gains = [0.0]
    for move in sorted(tried, key=str):
        after = run_variation(Variation(plan=stored.plan, rerun=stored.rerun, changes={move.setting: move.value}))
        if not isinstance(after, str) and after.finished >= before.finished and not after.breaks(before):
            gains.append(gain(before, after, objective) or 0.0)
    return gains
