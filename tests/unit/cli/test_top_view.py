"""The display of `top`: 80 columns whatever the number of stages, and the right colours in the right places."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from stageline.cli.top_view import BAR_ROWS, _cells, render
from stageline.engine.causes import CAUSES
from stageline.report.palette import DARK_BUSY
from stageline.runtime.cluster_view import PoolView, StageView, View

SHARES = {"busy": 0.5, "upstream": 0.25, "empty": 0.25}


def stage(index: int, shares: dict[str, float] | None = None, *, healthy: bool = True) -> StageView:
    """One stage."""
    return StageView(replica=0, stage=index, healthy=healthy, shares=SHARES if shares is None else shares, kv_ratio=0.5)


def shown(stages: list[StageView]) -> View:
    """A view of these stages and large figures."""
    return View(
        address="router.example:50051", title="llama-3.1-405b on 128 x h100-sxm", mode="run in emulated time",
        stages=stages, running=123_456, waiting=98_765, finished=12_345_678, failed=1_234_567, requests_per_s=1234.5,
        tokens_per_s=123_456.7, emulated_tokens_per_s=None, emulated_s=12_345.6, speed=1234.5, ttft_s=(0.001, 700.0),
        itl_s=(None, None), in_flight=59, credits=59, slip_s=1.5, kv_bound_stage=7,
        cancelled=0, trouble="", pools=[],
    )  # fmt: skip


def printed(view: View, width: int = 80) -> list[str]:
    """Its lines."""
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(render(view, width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("stages", "most_lines"), [(1, 20), (8, 20), (59, 20), (200, 50)])
def test_fits_80_columns(stages: int, most_lines: int) -> None:
    lines = printed(shown([stage(i) for i in range(stages)]))
    assert max(map(len, lines)) <= 80
    assert len(lines) <= most_lines
    assert sum(line.count("█") for line in lines) >= stages * BAR_ROWS


def test_bars_stack_from_busy_to_empty() -> None:
    assert _cells(stage(0)) == ["busy"] * 8 + ["upstream"] * 4 + ["empty"] * 4
    assert _cells(stage(0, {"busy": 0.99, "hop": 0.01})) == ["busy"] * 16
    assert _cells(stage(0, {"busy": 0.05, "hop": 0.95})) == ["busy"] + ["hop"] * 15


def test_a_row_that_two_parts_share_shows_both() -> None:
    out = StringIO()
    Console(file=out, width=80, color_system="truecolor", force_terminal=True).print(
        render(shown([stage(0, {"busy": 1 / 16, "hop": 15 / 16})]), 80)
    )
    row = next(line for line in out.getvalue().splitlines() if "▀" in line)
    red, green, blue = (int(DARK_BUSY[i : i + 2], 16) for i in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}m▀▀▀▀▀▀▀" in row
    assert out.getvalue().count("▀") == 7


def test_a_dead_stage_and_an_unknown_one() -> None:
    lines = printed(shown([stage(0), stage(1, {}, healthy=False), stage(2, {})]))
    assert any("xxxxxxx" in line and "·······" in line for line in lines)
    assert any("down: 1" in line for line in lines)


@pytest.mark.parametrize("width", [40, 80])
def test_no_cause_is_cut_off(width: int) -> None:
    shares = dict.fromkeys(("busy", *CAUSES), 0.1)
    text = "\n".join(printed(shown([stage(i, shares) for i in range(8)]), width)).replace("\n", " ")
    for name in shares:
        assert f"█ {name} " in text
        assert f"{name} 10.0%" in text


def test_nothing_known_yet() -> None:
    assert "no stage has served anything since the last frame" in printed(shown([stage(0, {})]))[-1]


def test_a_client_that_left_is_no_failure() -> None:
    view = msgspec.structs.replace(shown([stage(0)]), finished=3, failed=0, cancelled=2)
    line = next(line for line in printed(view) if line.startswith("requests"))
    assert "finished 3  left 2" in line
    assert "failed" not in line


def test_a_clock_without_work_is_said_to_rest() -> None:
    view = msgspec.structs.replace(shown([stage(0)]), running=0, waiting=0, in_flight=0, speed=0.0)
    assert any("(no work since)" in line for line in printed(view))
    assert not any("(no work since)" in line for line in printed(msgspec.structs.replace(view, running=1)))


def test_a_fleet_has_a_line_per_pool() -> None:
    common = {"running": 1234, "waiting": 5, "moving_bytes": 0, "moving_requests": 0, "ports": 0, "port_ratio": None}
    pools = [
        PoolView(
            name="prefill", **common | {"ports": 1, "port_ratio": 0.425, "moving_bytes": 10**10, "moving_requests": 7}
        ),
        PoolView(name="a-pool-of-a-long-name", **common | {"ports": 2}),
        PoolView(name="both", **common),
    ]
    lines = printed(msgspec.structs.replace(shown([stage(0)]), pools=pools))
    found = [" ".join(line.split()) for line in lines if any(line.startswith(pool.name[:15]) for pool in pools)]
    assert found == [
        "prefill running 1,234 waiting 5 KV in flight 10.00 GB (7) port 42%",
        "a-pool-of-a-lon… running 1,234 waiting 5 KV in flight 0 B (0) port -",
        "both running 1,234 waiting 5",
    ]
    assert max(map(len, lines)) <= 80


def test_trouble_is_said_above_all_figures() -> None:
    view = msgspec.structs.replace(shown([stage(0)]), trouble="stage 1 has not answered for 10 s and counts as lost")
    assert printed(view)[1] == "stage 1 has not answered for 10 s and counts as lost"
