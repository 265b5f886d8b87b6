"""`stageline fleet`, and fleets in the other commands: run, report, compare, and those that take one plan."""

import json
from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from stageline.report.digest import digest_of
from tests.integration.cli.conftest import SPEC

FLEET = """
[kv-transfer]
bandwidth = "50GB/s"
latency = "20us"

[[pool]]
name = "prefill"
role = "prefill"
model = "llama-3.1-70b"
device = "h100-sxm"
flags = "--tp 4"
replicas = 2

[[pool]]
name = "decode"
role = "decode"
model = "llama-3.1-70b"
device = "h100-sxm"
flags = "--tp 8"
ingress = "25GB/s"
"""


@pytest.fixture
def pair(plan: str, tmp_path: Path) -> str:
    """The path of a fleet of two pools of the same plan."""
    path = tmp_path / "fleet.toml"
    pools = (("one", "replicas = 2"), ("two", 'scheduling = "--kv grow"'))
    path.write_text("".join(f'[[pool]]\nname = "{n}"\nplan = "{Path(plan).name}"\n{more}\n' for n, more in pools))
    return str(path)


def test_what_a_fleet_holds_and_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KV of a token by hand: 80 layers x K and V x 8 heads x 128 x 2 bytes = 327,680."""
    path, canonical = tmp_path / "fleet.toml", tmp_path / "fleet.json"
    path.write_text(FLEET)
    assert stageline(["fleet", str(path), "-o", str(canonical)]) == 0
    printed = capsys.readouterr().out
    assert "2 x prefill TP4 + 1 x decode TP8" in printed
    assert "16 devices, 3 replicas" in printed
    assert "  stageline plan llama-3.1-70b h100-sxm --tp 8\n" in printed
    assert stageline(["fleet", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert stageline(["fleet", str(canonical), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report
    (moved,) = report["transfers"]
    assert (moved["bytes_per_token"], moved["bytes_per_s"]) == (327_680, 25 * 10**9)
    for prompt, tokens in zip(moved["prompts"], (1024, 8192), strict=True):
        assert prompt["bytes"] == tokens * 327_680
        assert prompt["time_ns"] == -(-tokens * 327_680 // 25) + 20_000
    plan = ["plan", "llama-3.1-70b", "h100-sxm", "--tp", "4", "--json"]
    assert stageline(plan) == 0
    alone = json.loads(capsys.readouterr().out)
    assert report["pools"][0]["requests"] == 2 * alone["total_requests"]
    assert report["pools"][0]["devices"] == 8


def test_run_report_compare(pair: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, alone = tmp_path / "run", tmp_path / "alone"
    assert stageline(["run", pair, "--workload", SPEC, "-o", str(out), "--events"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "2 x one + 1 x two" in printed.out
    assert "two-0/0" in printed.out
    assert "tune" not in printed.out
    assert max(map(len, printed.out.splitlines())) <= 80 or "poisson" in printed.out
    assert (out / "fleet.json").exists()
    assert stageline(["report", str(out), "--verify", "--sheet", "--perfetto", str(tmp_path / "t.pftrace")]) == 0
    assert "one-1 stage 2 (stage-2)" in (tmp_path / "t.pftrace").read_bytes().decode("utf-8", "replace")
    page = (out / "report.html").read_text()
    assert '"replicas":["one-0","one-1","two-0"]' in page
    assert '"stage_numbers":[0,1,2,0,1,2,3,4,5]' in page
    capsys.readouterr()
    assert stageline(["run", plan, "--workload", SPEC, "-o", str(alone), "--replicas", "3"]) == 0
    capsys.readouterr()
    assert stageline(["compare", str(alone), str(out), "--json"]) == 0
    changes = dict(json.loads(capsys.readouterr().out)["changes"])
    assert changes["fleet"] == ["-", "2 x one + 1 x two"]
    assert changes["two: kv"] == ["-", "grow"]
    assert digest_of(out) == digest_of(alone)  # no KV ran out: two pools of one plan are one pool of as many


def test_a_run_keeps_what_it_is_made_of(
    pair: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its fleet file, and the plans that it names."""
    out = tmp_path / "run"
    assert stageline(["run", plan, "--workload", SPEC, "-o", str(out)]) == 0
    named = tmp_path / "named.toml"
    named.write_text('[[pool]]\nname = "a"\nplan = "run/plan.json"')
    assert stageline(["run", str(named), "--workload", SPEC, "-o", str(out)]) == 2
    assert "the run would overwrite its own input" in capsys.readouterr().err
    assert (out / "plan.json").exists()
    assert stageline(["run", pair, "--workload", SPEC, "-o", str(out)]) == 0
    assert stageline(["run", str(out / "fleet.json"), "--workload", SPEC, "-o", str(out)]) == 2
    assert (out / "fleet.json").exists()


def test_flags_of_a_run_go_to_the_router_and_to_every_pool(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["run", pair, "--workload", SPEC, "--kv", "grow", "--balance", "kv", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["settings"]["kv"], summary["settings"]["balance"]) == ("grow", "kv")
    assert [pool["settings"]["kv"] for pool in summary["pools"]] == ["grow", "grow"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--workload", SPEC, "--replicas", "2"], "--replicas: each pool of a fleet has its own"),
        (
            ["run", "--workload", SPEC, "--engine", "cluster", "--queueing", "my:Policy"],
            "my:Policy: servers import no code that a fleet names",
        ),
        (["run", "--workload", SPEC, "--serving-engine", "sglang"], "--serving-engine sglang: each pool of a fleet"),
        (["sweep", "--workload", SPEC, "--over", "microbatch=1,2"], "is a fleet file, and this command takes the plan"),
        (["up", "--queueing", "my:Policy"], "my:Policy: servers import no code that a fleet names"),
        (["up", "--serving-engine", "sglang"], "--serving-engine sglang: each pool of a fleet"),
    ],
)
def test_what_does_not_take_a_fleet_says_so(
    words: list[str], message: str, pair: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canonical = tmp_path / "fleet.json"
    assert stageline(["fleet", pair, "-o", str(canonical)]) == 0
    for path in (pair, str(canonical)):
        capsys.readouterr()
        assert stageline([words[0], path, *words[1:]]) == 2
        assert message in capsys.readouterr().err


def test_servers_read_a_fleet_in_its_canonical_form_only(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["render", "k8s", pair]) == 2
    assert f"write it with stageline fleet {pair} -o fleet.json, and render that" in capsys.readouterr().err


def test_search_takes_no_file(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It plans models itself, as plan does."""
    for words in (["search", pair, "h100-sxm", "--devices", "2", "--workload", SPEC], ["plan", pair, "h100-sxm"]):
        assert stageline(words) == 2
        assert "a fleet file stands for no model" in capsys.readouterr().err


def test_a_model_that_no_pool_serves(pair: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival_ns": 0, "prompt_tokens": 4, "output_tokens": 2, "model": "other"}\n')
    assert stageline(["run", pair, "--workload", str(trace)]) == 1
    assert "names another model than test" in capsys.readouterr().err
