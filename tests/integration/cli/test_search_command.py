"""`stageline search` and `stageline calibrate` as users meet them."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from stageline.api.trials import run_trials
from stageline.cli.main import invoke as run

LOAD = "poisson:rate=4,input=256,output=16"


def search(
    capsys: pytest.CaptureFixture[str], *more: str, devices: str = "4"
) -> tuple[int, dict[str, list[dict[str, object]]]]:
    words = ["search", "llama-3.1-70b", "h100-sxm", "--devices", devices, "--workload", LOAD, "--requests", "10"]
    code = run([*words, "--jobs", "1", "--json", *more])
    return code, json.loads(capsys.readouterr().out or "{}")


def test_every_division_that_fits_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = search(capsys)
    assert code == 0
    names = [trial["name"] for trial in found["trials"]]
    assert names == ["pp2 dp2", "pp4", "tp2 dp2", "tp2 pp2", "tp4"]
    assert [left["name"] for left in found["left_out"]] == ["dp4"]
    assert all(trial["finished"] == 10 for trial in found["trials"])


def test_a_bound_prunes_what_misses_the_objective_anyway(capsys: pytest.CaptureFixture[str]) -> None:
    """A lone token on two stages reads all weights at one device's rate: 50 ms."""
    _, found = search(capsys, "--slo", "tpot=30ms")
    assert "tp4" in [trial["name"] for trial in found["trials"]]
    assert any("lone token" in str(left["reason"]) for left in found["left_out"])


def test_an_objective_that_nothing_meets_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = search(capsys, "--slo", "ttft=1us")
    assert code == 3
    assert [trial["slo_met"] for trial in found["trials"]] == [False] * 5
    assert search(capsys, "--slo", "ttft=100s")[0] == 0


def test_a_second_search_goes_on_where_the_first_stopped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "trials.jsonl"
    _, first = search(capsys, "--resume", str(kept))
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # stopped in the middle of a line
    ran: list[str] = []

    def watched(candidates: list[object]) -> object:
        ran.extend(c.name for c in candidates)  # type: ignore[attr-defined]
        return run_trials(candidates)  # type: ignore[arg-type]

    monkeypatch.setattr("stageline.api.searching.run_trials", watched)
    _, second = search(capsys, "--resume", str(kept))
    assert ran == ["tp4"]
    assert second == first


def test_the_curve_over_numbers_of_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "curve.svg"
    words = ["search", "llama-3.1-70b", "h100-sxm", "--devices", "3..4", "--workload", LOAD, "--requests", "10"]
    assert run([*words, "--jobs", "1", "--price", "2", "--plot", str(chart)]) == 0
    shown = capsys.readouterr().out
    assert "best at every number of devices" in shown and "$/M" in shown
    assert chart.stat().st_size > 1000


def test_what_binds_says_for_which_divisions_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "2", "--workload", LOAD, "--requests", "10"]
    assert run([*words, "--jobs", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "binds (tp2): One h100-sxm holds the weights and all KV of this run" in shown
    assert run([*words, "--jobs", "1", "--json"]) == 0
    trials = {trial["name"]: trial["binds"] for trial in json.loads(capsys.readouterr().out)["trials"]}
    assert any("One h100-sxm holds" in line for line in trials["pp2"])
    assert not any("One h100-sxm holds" in line for line in trials["dp2"])


def test_several_models_and_devices_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "llama-3.1-8b,qwen2.5-7b", "h100-sxm,a100-80g", "--devices", "1", "--workload", LOAD]
    assert run([*words, "--requests", "10", "--jobs", "1", "--json"]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [(t["model"], t["device"]) for t in trials] == [
        (model, device) for model in ("llama-3.1-8b", "qwen2.5-7b") for device in ("h100-sxm", "a100-80g")
    ]
    assert run([*words, "--requests", "10", "--jobs", "2"]) == 0
    assert "qwen2.5-7b on h100-sxm: tp1" in " ".join(capsys.readouterr().out.split())


def test_a_prefix_cache_in_a_search(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Conversations that share a long system prompt: what is cached is not prefilled again."""
    kept = tmp_path / "trials.jsonl"
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "1", "--requests", "40", "--jobs", "1", "--json"]
    words += ["--workload", "sessions:rate=2,turns=4,system=4096,question=64,output=16", "--resume", str(kept)]
    found = []
    for more in (["--no-enable-prefix-caching"], []):  # the default of vllm-v1
        assert run([*words, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["trials"][0]["ttft_p50_s"])
    assert found[1] < 0.5 * found[0]
    assert len(kept.read_text().splitlines()) == 2  # neither is taken for the other


@pytest.mark.parametrize(
    ("words", "names", "code"),
    [
        (["--devices", "four"], "--devices", 2),
        (["--devices", "5..4"], "--devices", 2),
        (["--devices", "1"], "none of the", 4),
        (["--devices", "4", "--microbatches", "0"], "--microbatch", 2),
        (["--devices", "4", "--jobs", "0"], "--jobs", 2),
        (["--devices", "4", "--slo", "nonsense"], "--slo", 2),
        (["--devices", "4", "--price", "nan"], "--price", 2),
        (["--devices", "4", "--price", "-1"], "--price", 2),
        (["--devices", "4", "--price", "inf"], "--price", 2),
        (["--devices", "4", "--price", "0"], "--price", 2),
        (["--devices", "4", "--seed", "-1"], "--seed", 2),
        (["--devices", "4", "--most-context-parallel", "0"], "--max-context-parallel", 2),
        (["--devices", "4097"], "--devices", 2),
        (["--devices", "4", "--rate-scale", "0"], "--rate-scale", 2),
        (["--devices", "4", "--batched-tokens", "512,x"], "--batched-tokens", 2),
        (["--devices", "4", "--prefix-cache", "maybe"], "--prefix-cache", 2),
        (["--devices", "4", "--kv-cache-dtype", "fp9"], "--kv-cache-dtype", 2),
        (["--devices", "4", "--weights", "fp7,fp8"], "--weights", 2),
        (["--devices", "4", "--balance", "nobody,round-robin"], "--balance nobody", 2),
        (["--devices", "4", "--stock", "16"], "--stock", 2),
        (["--devices", "4", "--stock", "h100-sxm=2"], "in stock", 4),
        (["--devices", "4", "--budget", "3"], "--price", 2),
        (["--devices", "4", "--price", "h100-sxm=2", "--budget", "7"], "--budget", 4),
        (["--devices", "4", "--whole-nodes"], "--whole-nodes", 4),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], names: str, code: int) -> None:
    assert run(["search", "llama-3.1-70b", "h100-sxm", "--workload", LOAD, *words]) == code
    assert names in capsys.readouterr().err


def test_kernels_become_a_profile_and_a_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shared_data: Path
) -> None:
    kernels = shared_data / "measured" / "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1"
    profile, plan = tmp_path / "p.json", tmp_path / "plan.json"
    assert run(["calibrate", str(kernels), "llama-3.1-8b", "rtx-pro-6000", "-o", str(profile), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert run(["plan", "llama-3.1-8b", "rtx-pro-6000", "--profile", str(profile), "-o", str(plan)]) == 0
    assert json.loads(plan.read_text())["costs"][0]["kind"] == "measured"
    capsys.readouterr()
    assert run(["plan", "llama-3.1-8b", "h100-sxm", "--profile", str(profile)]) == 2
    assert "measured with device" in capsys.readouterr().err
    profile.write_text("{}")
    assert run(["plan", "llama-3.1-8b", "rtx-pro-6000", "--profile", str(profile)]) == 2
    assert "not a profile" in capsys.readouterr().err


def test_a_terminal_sees_a_bar_and_a_chart_of_the_front(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    chart = tmp_path / "front.png"
    words = ["search", "llama-3.1-70b", "h100-sxm", "--devices", "4", "--workload", LOAD, "--requests", "10"]
    assert run([*words, "--jobs", "1", "--json", "--plot", str(chart)]) == 0
    shown = capsys.readouterr()
    assert "divisions" in shown.err
    assert len(json.loads(shown.out)["trials"]) == 5
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_settings_are_varied_and_the_answer_can_be_pasted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The printed lines make the plan that was run, and say the setting that they can't."""
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "2", "--jobs", "1", "--requests", "60", "--json"]
    words += ["--workload", "poisson:rate=40,input=1024,output=32", "--slo", "ttft=200ms,tpot=12ms"]
    words += ["--batched-tokens", "512,8192", "--balance", "least-loaded", "--max-num-seqs", "64"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    best, launch = found["best"], found["launch"]
    assert "--batched-tokens" in best["settings"] and best["slo_met"]
    assert {row["name"] for row in found["runners_up"]} == {"tp2", "pp2", "dp2"} - {best["name"]}
    assert any("--balance least-loaded" in text for text in launch["not_said"])
    values = tmp_path / "values.yaml"
    values.write_text(launch["helm"])
    assert yaml.safe_load(launch["helm"])["servingEngineSpec"]["modelSpec"][0]["requestGPU"] >= 1
    assert not launch["helm"].startswith("{")
    plans = []
    for number, like in enumerate([launch["vllm"], str(values)]):
        path = tmp_path / f"{number}.json"
        assert run(["plan", "h100-sxm", "--like", like, "-o", str(path)]) == 0
        plans.append(json.loads(path.read_text()))
    assert all(plan["defaults"]["batched_tokens"] in (512, 8192) for plan in plans)
    assert {key: plans[0][key] for key in plans[0] if key != "info"} == {
        key: plans[1][key] for key in plans[1] if key != "info"
    }
    capsys.readouterr()
    assert run(["plan", "h100-sxm", "--like", launch["sglang"]]) == 0


PASTED = (
    "llama-3.1-8b h100-sxm --devices 2 --balance least-loaded --warmup 5 --slo ttft=1s",
    "llama-3.1-8b h100-sxm,l40s --devices 1..2 --stock l40s=1 --price h100-sxm=3,l40s=1",
    "llama-3.1-70b wse-3 --devices 4 --microbatch 1,8 --credits 2,8 --overhead 50us",
    "llama-3.1-70b h100-sxm --devices 2 --weights fp8 --kv-cache-dtype fp8 --context 8K",
    "llama-3.1-8b h100-sxm --devices 2 --survive-loss --slo ttft=1s --host-step 1ms",
    "gpt-oss-20b h100-sxm --devices 2 --serving-engine sglang --queueing shortest",
)


@pytest.mark.parametrize("asked", PASTED)
def test_the_commands_of_the_answer_make_it_again(
    asked: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan and the run as printed, and the run on the plan of the engine's launch line."""
    monkeypatch.chdir(tmp_path)
    load = ["--workload", "poisson:rate=20,input=256,output=16", "--requests", "30", "--seed", "3"]
    words = ["search", *asked.split(), *load, "--jobs", "1", "--no-headroom"]
    assert run(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert run([*words, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    plan, again = (next(t for t in shown if t.startswith(f"stageline {n} ")) for n in ("plan", "run"))
    pasted = [line for line in shown if line.startswith("python -m sglang" if "sglang" in asked else "vllm serve")]
    assert len(pasted) == (0 if "wse-3" in asked else 1)
    beside = [word for flag in ("--host-step", "--context") for word in _flag(words, flag)]  # no engine is told
    likes = [["plan", best["device"], "--like", line, *beside, "-o", "plan.json"] for line in pasted]
    for command in [shlex.split(plan)[1:], *likes]:
        assert run(command) == 0
        capsys.readouterr()
        assert run([*shlex.split(again)[1:], "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["ttft_s"]["p99"], summary["tpot_s"]["p99"]) == (best["ttft_p99_s"], best["tpot_p99_s"])
        assert summary["measured"]["served_output_tokens_per_s"] == best["output_tokens_per_s"]
        cost = summary["cost"] and summary["cost"]["per_million_output_tokens"]
        assert cost == pytest.approx(best["cost_per_million_tokens"])


def _flag(words: list[str], name: str) -> list[str]:
    return words[words.index(name) :][:2] if name in words else []


def test_room_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """The largest load that the answer keeps, also without one of its replicas, which carries less."""
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "2", "--jobs", "1", "--requests", "80", "--json"]
    words += ["--workload", "poisson:rate=20,input=1024,output=16", "--slo", "ttft=60ms"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    whole, lost = found["robustness"]["whole"], found["robustness"]["one_lost"]
    assert whole["kept"] >= 1.0
    if lost is not None:
        assert (lost["kept"] or 0.0) < whole["kept"]


def test_a_lost_replica_must_still_meet_the_objective(capsys: pytest.CaptureFixture[str]) -> None:
    """One device is enough for the load, two for the load and a loss: brute force over both says the same."""
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "1..3", "--jobs", "1", "--requests", "60", "--json"]
    words += ["--workload", "poisson:rate=10,input=512,output=16", "--no-headroom", "--slo", "ttft=100ms"]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["best"]["devices"] == 1
    assert run([*words, "--survive-loss"]) == 0
    found = json.loads(capsys.readouterr().out)
    best = found["best"]
    assert (best["name"], best["devices"], best["replicas"], best["slo_met"]) == ("dp2", 2, 2, True)
    assert best["attainment"] >= 0.99 and best["attainment_one_lost"] >= 0.99
    reasons = {left["name"]: left["reason"] for left in found["left_out"]}
    assert "no other replica" in reasons["tp1"] and "no other replica" in reasons["tp2"]
    assert run([*words[:-2], "--survive-loss"]) == 2
    assert "--survive-loss" in capsys.readouterr().err


def test_figures_of_a_run_with_one_replica_lost_are_not_those_of_the_division(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two replicas are enough for the load and one is not: they were run as one only."""
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "2", "--jobs", "1", "--requests", "100"]
    words += ["--no-headroom", "--workload", "poisson:rate=30,input=1024,output=64", "--slo", "tpot=12ms"]
    assert run([*words, "--json"]) == 0
    assert {t["name"] for t in json.loads(capsys.readouterr().out)["trials"] if t["slo_met"]} >= {"dp2"}
    assert run([*words, "--survive-loss", "--json"]) == 3
    shown = capsys.readouterr()
    best = json.loads(shown.out)["best"]
    assert best["name"] == "dp2" and best["only_one_lost"] and best["attainment"] == best["attainment_one_lost"] < 0.9
    assert "of the requests are good with one replica lost" in shown.err
    assert run([*words, "--survive-loss"]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "(one" in text and "(misses)" not in text and "1 miss it with one replica lost" in text
    assert f"answer: dp2 ({best['attainment']:.2%} good with one replica lost)" in text


def test_more_devices_are_left_when_fewer_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = search(capsys, "--slo", "ttft=100s", devices="4..6")
    assert {trial["devices"] for trial in found["trials"]} == {4}
    assert [left["name"] for left in found["left_out"] if "--every-count" in str(left["reason"])] == [
        "5 devices",
        "6 devices",
    ]
    _, found = search(capsys, "--slo", "ttft=100s", "--every-count", devices="4..6")
    assert {trial["devices"] for trial in found["trials"]} == {4, 5, 6}


@pytest.mark.parametrize("window", [["--warmup", "20"], ["--measure-window", "1s..2s"], ["--measure-window", "all"]])
def test_a_search_measures_as_a_run_does(window: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same window, and so the same rates, attainment and cost; bounds on all requests say nothing of a part."""
    load = ["--workload", "poisson:rate=20,input=1024,output=16", "--requests", "60", "--slo", "ttft=50ms", *window]
    plan = str(tmp_path / "plan.json")
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "1", "--jobs", "1", "--no-headroom", *load, "--json"]
    code = run([*words, "--price", "2"])
    best = json.loads(capsys.readouterr().out)["best"]
    assert run(["plan", "llama-3.1-8b", "h100-sxm", "-o", plan]) == 0
    capsys.readouterr()
    assert run(["run", plan, *load, "--price", "2", "--json"]) == code
    summary = json.loads(capsys.readouterr().out)
    measured = summary["measured"]
    assert best["served_requests_per_s"] == measured["served_requests_per_s"]
    assert best["output_tokens_per_s"] == measured["served_output_tokens_per_s"]
    assert best["goodput_requests_per_s"] == measured["goodput_requests_per_s"]
    assert best["attainment"] == summary["slo"]["attainment"]
    assert best["cost_per_million_tokens"] == pytest.approx(summary["cost"]["per_million_output_tokens"])


def test_what_was_left_out_names_model_and_device_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "llama-3.1-8b", "h100-sxm,a100-80g", "--devices", "1..2", "--workload", LOAD, "--jobs", "1"]
    words += ["--requests", "10", "--stock", "a100-80g=1", "--slo", "ttft=100s", "--no-headroom", "--json"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    left = {(x["name"], x["reason"].partition(" (")[0]) for x in found["left_out"]}
    assert ("llama-3.1-8b on a100-80g: tp2", "it needs 2 devices of the 1 in stock") in left
    assert ("llama-3.1-8b on h100-sxm: 2 devices", "fewer meet the objective") in left
    assert found["combinations"] == 5 and len(found["trials"]) == 2


def test_a_brief_load_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten requests of four a second arrive within three seconds, and are no picture of that load."""
    words = [
        "search",
        "llama-3.1-70b",
        "h100-sxm",
        "--devices",
        "4",
        "--workload",
        "poisson:rate=400,input=256,output=64",
    ]
    assert run([*words, "--requests", "10", "--jobs", "1"]) == 0
    assert "give more --requests" in " ".join(capsys.readouterr().out.split())


def test_a_search_that_serves_nobody_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """All requests are longer than the model's context; with an objective, too."""
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "1", "--jobs", "1", "--requests", "3"]
    words += ["--workload", "poisson:rate=4,input=200000,output=2"]
    for more in ([], ["--slo", "ttft=1s"]):
        assert run([*words, *more]) == 1
        assert "no request finished in any of 1 trials" in " ".join(capsys.readouterr().err.split())


def test_a_missed_objective_says_how_far_it_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    """And no cure that was not tried."""
    assert search(capsys, "--slo", "ttft=1us")[0] == 3
    words = ["search", "llama-3.1-70b", "h100-sxm", "--devices", "4", "--workload", LOAD, "--requests", "10"]
    assert run([*words, "--jobs", "1", "--slo", "ttft=1us"]) == 3
    error = capsys.readouterr().err
    assert "in the best 0.00% of the requests are good" in error and "more devices" not in error


def test_a_pipeline_that_is_pasted_keeps_its_cut(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Balanced stages are not the engine's own split, so the lines and the values file give the layers.

    Of more sequences than 32 the even cut, which is the engine's, would hold more.
    """
    monkeypatch.chdir(tmp_path)
    load = ["--workload", "poisson:rate=1,input=512,output=64", "--requests", "30", "--max-num-seqs", "32"]
    code = run(["search", "llama-3.1-405b", "h100-sxm", "--devices", "16", "--tensor-in-node", *load, "--jobs", "1"])
    shown = capsys.readouterr().out
    assert code == 0
    line = next(text for text in shown.splitlines() if "vllm serve" in text)
    assert line.startswith("VLLM_PP_LAYER_PARTITION=")
    Path("values.yaml").write_text(shown[shown.index("servingEngineSpec:") :])
    plans = []
    for like in (line, "values.yaml"):
        assert run(["plan", "--like", like, "h100-sxm", "--json", "-o", "p.json"]) == 0
        plans.append(json.loads(Path("p.json").read_text())["stages"])
    counts = line.split()[0].partition("=")[2]
    assert [",".join(str(len(stage["layers"])) for stage in stages) for stages in plans] == [counts, counts]
    capsys.readouterr()


def test_the_change_for_one_replica_is_no_reason_of_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = search(capsys)
    assert [str(left["reason"]).rpartition(" ")[2] for left in found["left_out"]] == ["short"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ["--price", "h100=2.5"],
            "--price: not one of the devices that are searched (got 'h100'); they are h100-sxm, l40s",
        ),
        (["--stock", "a100-80g=8"], "--stock: not one of the devices that are searched (got 'a100-80g')"),
        (["--price", "h100-sxm=2.5"], "--price: l40s has none, and others do; give one for each of h100-sxm, l40s"),
    ],
)
def test_prices_and_stocks_are_those_of_the_devices_searched(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["search", "llama-3.1-8b", "h100-sxm,l40s", "--devices", "1", "--workload", LOAD, "--requests", "10"]
    assert run([*words, "--jobs", "1", *flags]) == 2
    assert says in capsys.readouterr().err
