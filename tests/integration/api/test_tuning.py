"""`tune` advises only what it has tried: who follows its advice gets what it says, and it finds what a grid finds."""

import random
import re
from pathlib import Path

import pytest

import stageline
from stageline.api.moves import Move, moves
from stageline.api.rerunning import Variation, run_variation, stored_run
from stageline.engine.settings import Scheduling, plan_scheduling
from stageline.engine.types import Request
from stageline.errors import StagelineError, UsageError
from stageline.report.rerun import FIELDS_WITH_FLAGS
from stageline.report.tuned import Figures, Objective, figures_of, gain, read_tune
from stageline.workload import open_workload
from tests.property.tuned_runs import changed, follow

SEEDS = range(4)
OBJECTIVES: tuple[Objective, ...] = ("throughput", "ttft", "tpot", "goodput")


def random_run(seed: int, directory: Path) -> stageline.RunResult:
    draw = random.Random(seed)
    plan = stageline.plan_model(
        "llama-3.1-8b", "h100-sxm", devices=draw.choice([1, 2, 4]), replicas=draw.choice([1, 2])
    )
    sizes = f"input={draw.choice([256, 2048])},output={draw.choice([8, 32])}"
    arrivals = draw.choice([f"closed:users={draw.choice([4, 16])}", f"poisson:rate={draw.choice([10, 40])}"])
    asked = {"microbatch": draw.choice([1, 4, 32]), "batched_tokens": draw.choice([128, 512, 4096])}
    return stageline.run(
        plan, f"{arrivals},requests={draw.choice([32, 64])},{sizes}", seed=seed, slo="ttft=200ms,tpot=20ms",
        output=directory, **asked,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_advice_that_is_followed_does_what_it_says(seed: int, tmp_path: Path) -> None:
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    before = random_run(seed, tmp_path / "run").summary
    found = stageline.tune(tmp_path / "run", objective=objective)
    assert found.before == figures_of(before, found.before.devices)
    after = follow(found.command, tmp_path / "best")
    if found.best is None:
        assert after == found.before
    else:
        assert after == found.best.figures
        assert (gain(found.before, after, objective) or 0) > 0
    stored = stored_run(tmp_path / "run")
    for i, advised in enumerate(m for m in found.measured if m.helps):
        command = changed(
            stored.rerun.command(str(tmp_path / "run/plan.json"), plan_scheduling(stored.plan)), advised.flags
        )
        again = follow(command, tmp_path / str(i))
        assert again == advised.figures


@pytest.mark.parametrize("seed", SEEDS)
def test_it_finds_what_a_grid_of_single_settings_finds(seed: int, tmp_path: Path) -> None:
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    random_run(seed, tmp_path / "run")
    found = stageline.tune(tmp_path / "run", objective=objective)
    best = max(_grid(tmp_path / "run", found.before, objective))
    if best >= 0.1:
        assert found.best is not None
        assert found.best.gain >= 0.8 * best


def _grid(directory: Path, before: Figures, objective: Objective) -> list[float]:
    """The gain of every value of every setting, all tried in full."""
    stored = stored_run(directory)
    wider = [Move("batched_tokens", n) for n in (32, 64, 96, 192, 768, 8192)]
    wider += [Move(name, n) for name in ("microbatch", "credits", "max_running") for n in (1, 2, 3, 6, 12, 24, 48, 96)]
    tried = {*moves(stored.plan, stored.rerun.scheduling, stored.summary, stored.stages), *wider}
    gains = [0.0]
    for move in sorted(tried, key=str):
        after = run_variation(Variation(plan=stored.plan, rerun=stored.rerun, changes={move.setting: move.value}))
        if not isinstance(after, str) and after.finished >= before.finished and not after.breaks(before):
            gains.append(gain(before, after, objective) or 0.0)
    return gains


def test_a_trial_is_kept_within_the_budget(tmp_path: Path) -> None:
    random_run(1, tmp_path / "run")
    found = stageline.tune(tmp_path / "run", budget=3)
    assert found.full_trials <= 3
    assert read_tune(tmp_path / "run", found.run_digest) == found


def test_a_new_run_in_the_directory_has_no_tuning(tmp_path: Path) -> None:
    random_run(1, tmp_path / "run")
    stageline.tune(tmp_path / "run", budget=3)
    random_run(2, tmp_path / "run")
    assert not (tmp_path / "run/tune.json").exists()


def test_a_run_of_an_opened_workload_can_not_be_made_again(tmp_path: Path) -> None:
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    stageline.run(plan, open_workload("closed:users=2,requests=4,input=8,output=2"), output=tmp_path)
    with pytest.raises(StagelineError, match="does not say what it was made from"):
        stageline.tune(tmp_path)


def test_a_workload_that_has_changed_is_noticed(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    trace.write_text(head + "2023-11-16 18:17:03.0000000,100,4\n")
    stageline.run(stageline.plan_model("llama-3.1-8b", "h100-sxm"), trace, output=tmp_path / "run")
    trace.write_text(head + "2023-11-16 18:17:03.0000000,200,4\n")
    with pytest.raises(StagelineError, match="another digest"):
        stageline.tune(tmp_path / "run")
    trace.unlink()
    with pytest.raises(StagelineError, match="can't be made again"):
        stageline.tune(tmp_path / "run")


def test_every_setting_has_a_flag_that_a_command_can_name() -> None:
    assert set(Scheduling.__struct_fields__) == FIELDS_WITH_FLAGS


def test_a_window_in_which_nothing_is_served_is_not_compared(tmp_path: Path) -> None:
    """The baseline would be 0 tokens per second, which every setting beats."""
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    ran = stageline.run(
        plan, "poisson:rate=48,requests=40,input=1024,output=128", measure_window="1ms..2ms", output=tmp_path / "run"
    )
    assert ran.summary.measured is not None and ran.summary.measured.served_output_tokens_per_s == 0
    found = stageline.tune(tmp_path / "run", budget=2)
    assert found.before.output_tokens_per_s == ran.summary.output_tokens_per_s
    assert "--measure-window" not in found.command


def test_trials_are_measured_in_the_steady_state_of_the_run(tmp_path: Path) -> None:
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    load = "poisson:rate=12,requests=200,input=1024,output=128"
    ran = stageline.run(plan, load, measure_window="auto", output=tmp_path / "run")
    assert ran.summary.measured is not None and ran.summary.measured.stationary
    found = stageline.tune(tmp_path / "run", budget=2)
    assert found.before.output_tokens_per_s == ran.summary.measured.served_output_tokens_per_s
    assert re.search(r"--measure-window \d+ns\.\.\d+ns", found.command)


LOAD = "poisson:rate=10,requests=40,input=1024,output=16"


def test_no_objective_breaks_an_slo_that_was_met(tmp_path: Path) -> None:
    """Small chunks make tokens quicker and first tokens slower than the SLO allows."""
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    ran = stageline.run(plan, LOAD, slo="ttft=60ms", output=tmp_path / "run").summary
    assert ran.slo is not None and ran.slo.met
    free = stageline.tune(tmp_path / "run", objective="tpot", slo="ttft=60s")
    bound = stageline.tune(tmp_path / "run", objective="tpot")
    broken = [flags for flags, reason in bound.left_out.items() if reason.startswith("misses the SLO")]
    assert free.best is not None and free.best.flags in broken
    assert all(m.figures.slo_met for m in bound.measured)
    assert bound.best is None or bound.best.figures.slo_met
    assert all(bound.before.slo_met and m.flags not in broken for m in bound.helped())


def test_the_limit_of_running_sequences_is_raised(tmp_path: Path) -> None:
    """--max-num-seqs is two limits of the router, and raising only one of them changes nothing."""
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    load = "closed:users=16,requests=48,input=256,output=32"
    stageline.run(plan, load, max_num_seqs=4, output=tmp_path / "run")
    found = stageline.tune(tmp_path / "run", budget=24)
    raised = max(found.measured, key=lambda m: m.figures.output_tokens_per_s)
    assert re.search(r"--max-running (16|64|256) --microbatch", raised.flags), raised.flags
    assert raised.gain is not None and raised.gain > 0.5
    stored = stored_run(tmp_path / "run")
    plain = stored.rerun.command(str(tmp_path / "run/plan.json"), plan_scheduling(stored.plan))
    assert follow(changed(plain, raised.flags), tmp_path / "again") == raised.figures


def test_an_engines_own_limit_is_raised_by_its_flag(tmp_path: Path) -> None:
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm", max_num_seqs=4)
    load = "closed:users=16,requests=48,input=256,output=32"
    stageline.run(plan, load, output=tmp_path / "run")
    found = stageline.tune(tmp_path / "run", budget=24)
    raised = next(m for m in found.helped() if m.flags == "--max-num-seqs 16")
    assert follow(f"stageline run {tmp_path}/run/plan.json --workload {load} {raised.flags}", tmp_path / "again") == (
        raised.figures
    )


def test_what_comes_from_nothing_is_ranked_by_what_it_is(tmp_path: Path) -> None:
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    load = "closed:users=16,requests=48,input=1024,output=16"
    ran = stageline.run(plan, load, batched_tokens=64, slo="ttft=100ms", output=tmp_path / "run").summary
    assert ran.slo is not None and ran.slo.good == 0
    found = stageline.tune(tmp_path / "run", objective="goodput")
    good = [m.figures.goodput_requests_per_s or 0.0 for m in found.helped()]
    assert len({*good}) > 1 and good == sorted(good, reverse=True)
    assert found.best is not None and (found.best.figures.goodput_requests_per_s or 0.0) >= good[0]
    assert read_tune(tmp_path / "run", found.run_digest) == found


def test_a_pasted_line_keeps_the_price(tmp_path: Path) -> None:
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    stageline.run(plan, LOAD, price=2.5, output=tmp_path / "run")
    found = stageline.tune(tmp_path / "run", budget=6)
    for command in (found.command, *(m.command for m in found.load)):
        assert "--price 2.5" in command


def test_code_that_only_the_directory_names_is_not_imported(tmp_path: Path) -> None:
    plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    stageline.run(plan, "closed:users=2,requests=4,input=8,output=2", queueing=OWN_POLICY, output=tmp_path)
    with pytest.raises(UsageError, match=f"policy {OWN_POLICY}, which is code to import: give --trust {OWN_POLICY}"):
        stageline.tune(tmp_path, budget=2)
    with pytest.raises(UsageError, match="which is code to import"):
        stageline.tune(tmp_path, budget=2, trust=["another:Policy"])
    assert stageline.tune(tmp_path, budget=2, trust=[OWN_POLICY]).before.output_tokens_per_s > 0


class Longest:
    """A queueing policy of a user's own."""

    def key(self, request: Request) -> tuple[int, ...]:
        """See QueueingPolicy."""
        return (-request.prompt_tokens,)


OWN_POLICY = f"{__name__}:Longest"
