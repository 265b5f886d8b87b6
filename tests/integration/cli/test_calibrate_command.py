"""`stageline calibrate`: constants that made a run are found again from its timings, and plans name them."""

import json
from pathlib import Path

import pytest

from stageline.api.fitting import MeasuredRun, Serving, distance, emulate, fit_efficiencies
from stageline.catalog.loader import Catalog
from stageline.cli.main import invoke as run
from stageline.cost.efficiencies import Efficiencies
from stageline.engine.types import Request
from stageline.workload.timings import MeasuredTimes, Timings

SHELF = Catalog()
TRUE = Efficiencies(
    name="true", model="qwen2.5-7b", device="h100-sxm", flops_share=0.4, bandwidth_share=0.55, step_ns=4_000_000
)


def requests(count: int = 24) -> tuple[Request, ...]:
    """Long prompts and long outputs in turn, so that compute, bandwidth and steps each show."""
    return tuple(
        Request(
            index=i, arrival_ns=i * 150_000_000, prompt_tokens=4000 if i % 3 == 0 else 60,
            output_tokens=20 if i % 3 == 0 else 60, max_output_tokens=60,
        )
        for i in range(count)
    )  # fmt: skip


def measured(times: list[MeasuredTimes] | None = None) -> MeasuredRun:
    asked = requests()
    known = tuple(times) if times else (MeasuredTimes(1, 1, 1),) * len(asked)
    spec, device = SHELF.model("qwen2.5-7b").spec, SHELF.device("h100-sxm").device
    return MeasuredRun(spec, device, Timings(asked, known, 0), Serving(max_num_seqs=64, batched_tokens=2048))


@pytest.fixture(scope="module")
def truth() -> list[MeasuredTimes]:
    return emulate(measured(), efficiencies=TRUE)


@pytest.fixture
def timings(truth: list[MeasuredTimes], tmp_path: Path) -> Path:
    path = tmp_path / "timings.jsonl"
    rows = [
        {"arrival_ns": r.arrival_ns, "prompt_tokens": r.prompt_tokens, "output_tokens": r.output_tokens,
         "ttft_ns": t.ttft_ns, "e2e_ns": t.e2e_ns}
        for r, t in zip(requests(), truth, strict=True)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_the_constants_that_made_a_run_are_found_again(truth: list[MeasuredTimes]) -> None:
    m = measured(truth)
    found = fit_efficiencies(m, "found", "test")
    assert distance(truth, emulate(m, efficiencies=found)) < 0.1 * distance(truth, emulate(m))
    assert found.flops_share == pytest.approx(TRUE.flops_share, rel=0.15)
    assert step_us(found) == pytest.approx(step_us(TRUE), rel=0.1)
    assert [r.points for r in (*found.residuals, *found.backtest)] == [12] * 6
    assert all(abs(r.mean or 0) < 0.05 for r in (*found.residuals, *found.backtest))
    assert found.least is not None and found.least.flops_share <= found.flops_share


def test_the_half_that_is_not_fitted_says_when_a_profile_does_not_hold(truth: list[MeasuredTimes]) -> None:
    """The second half was measured on a server twice as slow."""
    slow = [MeasuredTimes(2 * t.ttft_ns, 2 * (t.tpot_ns or 0), 2 * t.e2e_ns) for t in truth[12:]]
    found = fit_efficiencies(measured([*truth[:12], *slow]), "found", "test")
    assert all(abs(r.mean or 0) < 0.05 for r in found.residuals)
    assert all(r.mean == pytest.approx(-0.5, abs=0.05) for r in found.backtest)


def step_us(fit: Efficiencies) -> float:
    """A step of one sequence: its weights and the host. Most steps tell only the sum of both."""
    weights = SHELF.model("qwen2.5-7b").spec.weight_bytes()
    bandwidth = SHELF.device("h100-sxm").device.bandwidth_bytes_per_s
    return weights * 1e6 / (bandwidth * fit.bandwidth_share) + (fit.step_ns + fit.sequence_ns) / 1e3


def test_plans_name_a_profile(timings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profiles").mkdir()
    made = tmp_path / "profiles" / "mine.json"
    assert run(["calibrate", str(timings), "qwen2.5-7b", "h100-sxm", "-o", str(made), "--max-num-seqs", "64"]) == 0
    shown = capsys.readouterr().out
    assert "TTFT" in shown and "host per step" in shown
    plan = tmp_path / "plan.json"
    words = ["plan", "qwen2.5-7b", "h100-sxm", "-o", str(plan), "--json"]
    assert run(words) == 0
    plain = json.loads(capsys.readouterr().out)
    assert run([*words, "--catalog", str(tmp_path), "--profile", "mine"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert named["trip_ns"] > plain["trip_ns"] + 2_000_000
    assert json.loads(plan.read_text())["info"]["profile"] == "mine"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--profile", "nobody"], "no profile of this name"),
        (["--tp", "2"], "--tensor-parallel-size 1, not 2"),
    ],
)
def test_a_profile_serves_only_what_it_was_taken_on(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.json").write_bytes(as_json(TRUE))
    named = words if "--profile" in words else ["--profile", str(tmp_path / "p.json"), *words]
    assert run(["plan", "qwen2.5-7b", "h100-sxm", *named]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"flops_share": 0}, {"bandwidth_share": 1.5}, {"step_ns": -1}, {"more": 1}])
def test_a_profile_that_can_not_be_is_refused(
    change: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(json.loads(as_json(TRUE)) | change))
    assert run(["plan", "qwen2.5-7b", "h100-sxm", "--profile", str(path)]) == 2
    assert next(iter(change)) in capsys.readouterr().err


def as_json(value: Efficiencies) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--requests", "x.jsonl"], "which --requests and --attention-scale need"),
        (["--attention-scale", "2"], "which --requests and --attention-scale need"),
        (["--max-num-seqs", "0"], "--max-num-seqs"),
        (["--tp", "0"], "--tp"),
    ],
)
def test_mistakes(words: list[str], says: str, timings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = timings.with_name("p.json")
    assert run(["calibrate", str(timings), "qwen2.5-7b", "h100-sxm", "-o", str(out), *words]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()


def test_a_request_that_has_no_room_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"arrival_s": 0, "prompt_tokens": 10**7, "output_tokens": 1, "ttft_s": 1}
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join([json.dumps(row)] * 8))
    assert run(["calibrate", str(path), "qwen2.5-7b", "h100-sxm", "-o", str(tmp_path / "p.json")]) == 2
    assert "measured request 0" in capsys.readouterr().err


def test_the_scoreboards_calibrated_row(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels, and one scalar fitted to 300 measured requests: every mean within 5 %."""
    data = shared_data / "measured"
    kernels = data / "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1"
    asked = ["--requests", str(data / "RTXPRO6000_Llama-3.1-8B_vllm_requests.jsonl"), "--max-num-seqs", "128"]
    made = tmp_path / "p.json"
    assert run(["calibrate", str(kernels), "llama-3.1-8b", "rtx-pro-6000", "-o", str(made), "--json", *asked]) == 0
    found = {row["of"]: row["mean"] for row in json.loads(capsys.readouterr().out)}
    assert {name for name, mean in found.items() if mean is not None} == {"TTFT", "TPOT", "latency"}
    assert all(abs(mean) < 0.05 for mean in found.values() if mean is not None)
    assert json.loads(made.read_text())["attention_scale"] == pytest.approx(1.066, abs=0.01)
    assert run(["calibrate", str(kernels), "llama-3.1-8b", "rtx-pro-6000", "-o", str(made), *asked,
                "--attention-scale", "1"]) == 2  # fmt: skip


def kernel_tables(folder: Path, columns: dict[str, list[object]] | None = None) -> Path:
    """A folder of H100 tables with two GEMM shapes, bf16."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [(m, n, k) for m in (1, 64, 4096) for n, k in ((1024, 1024), (65536, 16384))]
    made: dict[str, list[object]] = {
        "gemm_dtype": ["bfloat16"] * len(rows),
        "m": [m for m, _, _ in rows],
        "n": [n for _, n, _ in rows],
        "k": [k for _, _, k in rows],
        "latency": [0.004 + m * n * k * 3e-15 for m, n, k in rows],
    }
    path = folder / "h100_sxm" / "gemm" / "vllm" / "1.0" / "gemm_perf.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.table(made | (columns or {})), path)
    return folder


def test_kernel_tables_become_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By flags, as the data of any model; what no table has is said, and plans name the profile."""
    made, plan = tmp_path / "p.json", tmp_path / "plan.json"
    words = ["--kernels", str(kernel_tables(tmp_path)), "--model", "qwen2.5-7b", "--device", "h100-sxm", "--tp", "2"]
    assert run(["calibrate", *words, "-o", str(made)]) == 0
    shown = capsys.readouterr().out
    assert "TP2" in shown and "1 to 4,096 tokens" in shown
    assert "decode attention, 2 KV heads of 128: not in the tables, the device's constants are used" in shown
    ask = ["plan", "qwen2.5-7b", "h100-sxm", "--tp", "2", "--batched-tokens", "8192", "--profile", str(made)]
    assert run([*ask, "-o", str(plan)]) == 0
    assert "new tokens in a step; up to 8,192 are extrapolated" in capsys.readouterr().out
    assert json.loads(plan.read_text())["info"]["profile"] == "p"
    assert run([*ask, "--weights", "fp8"]) == 2
    assert "weights" in capsys.readouterr().err
    assert run(["calibrate", *words, "--weights", "fp8", "-o", str(made)]) == 0
    assert run([*ask, "--weights", "fp8"]) == 0, capsys.readouterr().err
    assert "fewer than with the weights as shipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"latency": [0.1] * 5 + [-1.0]}, ("row 5, column latency", "-1.0")),
        ({"m": ["one"] * 6}, ("row 0, column m", "one", "not a number")),
        ({"gemm_dtype": ["bf8"] * 6}, ("column gemm_dtype", "bf8", "known: bfloat16")),
        ({"gemm_dtype": ["fp8"] * 6}, ("no bf16 GEMMs",)),
    ],
)
def test_a_bad_table_is_refused_with_its_file_column_and_value(
    columns: dict[str, list[object]], says: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", str(kernel_tables(tmp_path, columns)), "qwen2.5-7b", "h100-sxm", "-o", str(tmp_path / "p")]
    assert run(words) == 2
    found = capsys.readouterr().err
    assert "gemm_perf.parquet" in found
    assert all(part in found for part in says)


def test_tables_of_another_device_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["calibrate", str(kernel_tables(tmp_path) / "h100_sxm"), "qwen2.5-7b", "b200", "-o", str(tmp_path / "p")]
    assert run(asked) == 2
    assert "no kernel tables of b200" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "words", "says"),
    [
        ("b200", [], "no kernel tables of b200 (b200_sxm); it has h100_sxm"),
        ("h100-sxm", ["--attention-scale", "2"], "neither --requests nor --attention-scale"),
        ("h100-sxm", ["--tp", "3"], "28"),
    ],
)
def test_what_tables_can_not_serve_is_refused(
    device: str, words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["calibrate", str(kernel_tables(tmp_path)), "qwen2.5-7b", device, "-o", str(tmp_path / "p"), *words]
    assert run(asked) == 2
    assert says in capsys.readouterr().err


def test_timings_of_ranks_are_taken_from_their_own_folder(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never the unsharded layer's for a rank of two; a rank's profile plans that size, with its all-reduces."""
    folder = shared_data / "measured" / "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1"
    made = tmp_path / "p.json"
    words = ["llama-3.1-8b", "rtx-pro-6000", "-o", str(made), "--tp", "2"]
    assert run(["calibrate", str(folder), *words]) == 2
    assert "not of one of 2 ranks" in capsys.readouterr().err and not made.exists()
    (tmp_path / "tp2").mkdir()
    for file in folder.glob("*.csv"):
        (tmp_path / "tp2" / file.name).write_bytes(file.read_bytes())
    assert run(["calibrate", str(tmp_path), *words]) == 0
    profile = json.loads(made.read_text())
    assert profile["tensor_parallel"] == 2
    assert profile["layer"]["ns"][0] > 316_725.73 + 2 * 4_000
    assert run(["plan", "llama-3.1-8b", "rtx-pro-6000", "--tp", "2", "--profile", str(made)]) == 0
    (tmp_path / "tp2" / "linear_attention.csv").write_text("")
    assert run(["calibrate", str(tmp_path), *words]) == 2
    assert "linear_attention.csv: timings of a kind that a profile can't hold" in capsys.readouterr().err
