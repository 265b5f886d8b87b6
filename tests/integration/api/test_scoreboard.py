"""The rows of docs/fidelity.md are commands that a user can type, and give what the page says."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from bench.fidelity import ladder, leaderboard, mlenergy, sessions, static
from bench.fidelity.board import Row, by_making, markdown
from bench.fidelity.leaderboard import Sampling, Served
from bench.fidelity.typed import CATALOGUE
from stageline.catalog.loader import Catalog
from stageline.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "fidelity.md").read_text()


def shown() -> list[str]:
    """Lines of code blocks of the page that begin with `stageline`."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("stageline ")]


@pytest.mark.parametrize("line", shown())
def test_commands_of_the_page_are_understood(line: str) -> None:
    app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_every_system_shows_one() -> None:
    systems = re.findall(r"^### (?!By how)(.*)", PAGE, re.MULTILINE)
    assert len(systems) >= 8
    assert sum("stageline run" in line for line in shown()) >= len(systems)


@pytest.mark.parametrize("rows", [static.infersim, static.ring], ids=["DeepSeek-V3", "Meta"])
def test_rows_of_the_page_come_out_of_their_commands(rows: object) -> None:
    assert callable(rows)
    for row in rows():
        line = f"| {row.case} | {row.metric} | {row.measured:,.5g} {row.unit} | {row.emulated:,.5g} {row.unit} |"
        assert line in PAGE
        assert row.command.startswith("stageline plan ") and "stageline run plan.json" in row.command


def test_rows_from_kernel_tables_reach_their_targets(shared_data: Path) -> None:
    """Nothing is fitted on them."""
    pytest.importorskip("pyarrow")
    found = static.kimi(shared_data)
    for row in found:
        line = f"| {row.case} | {row.metric} | {row.measured:,.5g} {row.unit} | {row.emulated:,.5g} {row.unit} |"
        assert line in PAGE
    tables = [row for row in found if row.made == "tables"]
    assert [row.metric for row in tables] == ["TTFT", "TPOT"]
    for row in tables:
        assert row.command.startswith("stageline calibrate ") and "--profile ./profile.json" in row.command
        assert row.target is not None and abs(row.error) <= row.target


def test_errors_are_split_by_how_rows_were_made() -> None:
    def row(emulated: float, made: str) -> Row:
        return Row(system="S", case="c", metric="m", unit="ms", measured=100, emulated=emulated, made=made)

    text = by_making([row(90, "specification"), row(130, "specification"), row(101, "fitted on the row")])
    assert "| specification | S | 2 | 20.0% | 30.0% |" in text
    assert "| fitted on the row | S | 1 | 1.0% | 1.0% |" in text
    assert "made from" in markdown([row(90, "specification")])


def test_settings_of_long_rows_are_plans() -> None:
    for plan in (ladder.PLAN, *(system.plan for system in sessions.SYSTEMS)):
        app.parse_args(["plan", *shlex.split(plan)], exit_on_error=False, print_error=False)


def served(gpu: str = "H100", num_gpus: int = 1, itl_ms: float = 10.0, **fields: object) -> Served:
    """A row of the leaderboard."""
    known = {"model": "Qwen/Qwen3-8B", "task": "gpqa", "max_num_seqs": 8, "avg_batch": 8, "output_tokens_per_s": 800}
    shape = {
        "gpu": gpu,
        "num_gpus": num_gpus,
        "tp": num_gpus,
        "ep": 1,
        "avg_output_len": 100,
        "avg_power_w": 600 * num_gpus,
    }
    return msgspec.convert(known | shape | {"median_itl_ms": itl_ms} | fields, Served)


def test_rows_slower_than_on_less_hardware_are_not_counted() -> None:
    row = served("B200", itl_ms=12)
    assert mlenergy.not_bound([row, served(num_gpus=2)]) == {row}
    others = (served(num_gpus=4), served(itl_ms=12), served(max_num_seqs=16), served(task="lm-arena-chat"))
    for other in others:
        assert not mlenergy.not_bound([row, other])


def test_rows_below_half_of_the_power_limit_are_not_counted() -> None:
    idle = served("B200", num_gpus=2, avg_power_w=999)
    assert mlenergy.not_bound([idle, served("B200", num_gpus=2, avg_power_w=1000), served(avg_power_w=350)]) == {idle}


def test_sampling_constants_come_back() -> None:
    """One time per step for all, and one per token for models with top-k and for those without."""
    tokens = {"Qwen/Qwen3-8B": 0.055, "meta-llama/Llama-3.1-8B-Instruct": 0.04}
    known = [
        (served(model=model, avg_batch=n, itl_ms=5 + 0.3 + token * n), 5.0)
        for model, token in tokens.items()
        for n in (1, 8, 16)
    ]
    assert mlenergy.fitted(known) == {True: Sampling(300, 55), False: Sampling(300, 40)}


def test_throughput_leaves_out_the_first_prefills_and_the_drain() -> None:
    """One slot, four requests of three tokens 1 ms apart: counted until two are left."""
    requests = [
        {"first_token_ns": start * 10**6, "last_token_ns": (start + 2) * 10**6, "output_tokens": 3}
        for start in (0, 3, 6, 9)
    ]
    assert leaderboard.steady_tokens_per_s(requests, 1) == pytest.approx(6 / 5e-3)


def test_the_page_names_every_row_that_is_not_counted(shared_data: Path) -> None:
    rows = [row for row in leaderboard.read(shared_data) if row.consistent]
    apart = mlenergy.not_bound(rows)
    assert len(apart) > 0
    for row in apart:
        assert f"{mlenergy.case(row)} ({row.median_itl_ms:.0f} ms, emulated " in PAGE
    assert sum(map(int, re.findall(r"Not counted, (\d+) rows", PAGE))) == len(apart)


def test_the_device_with_deepgemm_differs_in_experts_of_block_fp8_alone() -> None:
    """Its other constants are copies, which a new fit of the tables must reach."""
    shelf = Catalog([ROOT / CATALOGUE])
    plain, own = (shelf.device(name).device for name in ("h100-sxm", "h100-deepgemm"))
    assert plain.costs and own.costs
    renamed = msgspec.structs.replace(own, name=plain.name, title=plain.title, costs=plain.costs)
    assert renamed == plain
    others = [tuple(row for row in costs.moe if row.format != "fp8-block") for costs in (plain.costs, own.costs)]
    assert others[0] == others[1] and plain.costs.moe != own.costs.moe
    assert msgspec.structs.replace(own.costs, name=plain.costs.name, moe=plain.costs.moe) == plain.costs
