"""Flags that say how devices are divided and wired."""

import json

import pytest

from stageline.cli.main import invoke as run

LLAMA = ["plan", "llama-3.1-70b", "h100-sxm", "--tp", "4", "--pp", "4"]


def planned(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, object]:
    assert run([*LLAMA, *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def axes(found: dict[str, object]) -> list[tuple[str, int, int, str]]:
    rows = found["axes"]
    assert isinstance(rows, list)
    return [(row["axis"], row["ranks"], row["stride"], row["link"]) for row in rows]


def test_axes_say_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert axes(planned(capsys)) == [("tp", 4, 1, "scale-up"), ("pp", 4, 4, "both")]
    assert axes(planned(capsys, "--axis-order", "pp,tp")) == [("pp", 4, 1, "scale-up"), ("tp", 4, 4, "scale-out")]
    assert axes(planned(capsys, "--devices-per-node", "4"))[1][3] == "scale-out"
    assert axes(planned(capsys, "--devices-per-node", "16"))[1][3] == "scale-up"
    assert axes(planned(capsys, "--devices-per-node", "1"))[0][3] == "scale-out"


def test_slower_links_make_a_longer_trip(capsys: pytest.CaptureFixture[str]) -> None:
    plain, out = planned(capsys), planned(capsys, "--scale-out", "10gbe")
    inside = planned(capsys, "--scale-up", "10gbe")
    assert plain["trip_ns"] < out["trip_ns"] < inside["trip_ns"]  # type: ignore[operator]
    across = planned(capsys, "--scale-out", "10gbe", "--devices-per-node", "2")
    assert across["trip_ns"] > out["trip_ns"]  # type: ignore[operator]


def test_activations_and_redundant_experts_take_room(capsys: pytest.CaptureFixture[str]) -> None:
    plain, less = planned(capsys, "--activations", "reserve"), planned(capsys)
    assert less["requests"] < plain["requests"]  # type: ignore[operator]
    device = less["stages"][0]["device"]  # type: ignore[index]
    assert device["reserve_bytes"] == 8_500_000_000 + device["activation_bytes"] + 577_765_376 + 411_041_792
    assert plain["state_binds_below_tokens"] is None and plain["by_context"][3]["binds"] == "kv"  # type: ignore[index]
    assert run(["plan", "deepseek-v3", "h800", "--ep", "32", "--num-redundant-experts", "32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weight_bytes"] > 1_300 * 10**9


def test_the_tables_name_every_part_of_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(LLAMA) == 0
    out = capsys.readouterr().out
    for word in ("weights +", "KV and", "reserve; activations need", "what binds"):
        assert word in out
    assert run(["plan", "kimi-k3", "wse-3t"]) == 0
    assert "more than the reserve" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--axis-order", "tp,tp"], "--axis-order tp,tp"),
        (["--axis-order", "xp"], "give some of tp,ep,cp,pp,dp"),
        (["--chunks", "2"], "--placement interleaved"),
        (["--placement", "interleaved", "--chunks", "0"], "--chunks 0"),
        (["--devices-per-node", "0"], "--devices-per-node 0"),
        (["--scale-out", "string"], "string"),
        (["--redundant-experts", "-1"], "--redundant-experts -1"),
        (["--redundant-experts", "4"], "spread experts with --ep"),
    ],
)
def test_mistakes_are_named(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LLAMA, *flags]) == 2
    assert said in capsys.readouterr().err
