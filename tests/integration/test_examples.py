"""The scripts that readers copy run as they stand."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stageline
from router.api import tokens
from tests.fake_openai import Fake, serving_beside


@pytest.mark.parametrize("script", ["load_openai.py", "load_stdlib.py"])
def test_a_client_to_copy(script: str, root: Path) -> None:
    with serving_beside(
        Fake(misbehave=lambda number: "cut" if script == "load_stdlib.py" and number == 4 else "")
    ) as fake:
        flags = ["--url", fake.url, "--rate", "200", "--requests", "6", "--tokens", "5"]
        done = subprocess.run(
            [sys.executable, str(root / "examples" / script), *flags], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    good = 5 if script == "load_stdlib.py" else 6
    assert f"{good} of 6 finished" in done.stdout
    assert "TTFT: median" in done.stdout
    assert ("failed: the stream was cut after 3 chunks" in done.stdout) == (good == 5)
    assert [call["max_tokens"] for call in fake.calls] == [5] * 6


def test_the_tokenizer_for_load_generators_counts_as_the_server_does(root: Path, tmp_path: Path) -> None:
    text = "O, that this too too solid flesh would melt,\nthaw and resolve itself into a dew!\n"
    (tmp_path / "corpus.txt").write_text(text)
    script = [sys.executable, str(root / "examples/tokenizer_cache.py")]
    done = subprocess.run(
        [*script, str(tmp_path / "cache"), str(tmp_path / "corpus.txt")], capture_output=True, text=True, check=True
    )
    model = tmp_path / "cache/hub/models--stageline--synthetic"
    snapshot = model / "snapshots" / (model / "refs/main").read_text()
    made = json.loads((snapshot / "tokenizer.json").read_text())
    vocabulary = made["model"]["vocab"]
    assert f"stageline/synthetic: {len(vocabulary)} tokens" in done.stdout
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    for said in (text, re.sub(r"[^\w\s]", "", text), "resolve a dew"):
        split = re.findall(made["pre_tokenizer"]["pattern"]["Regex"], said)
        assert len(split) == tokens.count(said)
        assert [piece for piece in split if piece not in vocabulary] == []
    assert json.loads((snapshot / "config.json").read_text()) == {}


def test_the_fleet_to_copy(root: Path) -> None:
    """KV of a prompt of 2,048: 671 MB, 13.4 ms on a card of 400 Gbit/s, and its latency."""
    planned = stageline.plan_fleet(root / "examples/fleet.toml")
    run = stageline.run(planned, "poisson:rate=4,input=2048,output=16,requests=12")
    assert run.summary.requests["finished"] == 12
    assert {record.hand_over and record.hand_over.decode_replica for record in run.requests} == {2}
    assert run.summary.hand_over is not None
    assert run.summary.hand_over.transfer_s.p50 == pytest.approx(2048 * 327_680 / 50e9 + 3e-6, abs=2e-9)
