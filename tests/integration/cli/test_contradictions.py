"""Flags that contradict each other, or that mean nothing here, are refused: none is dropped in silence."""

import pytest

from stageline.cli.main import invoke as stageline
from tests.integration.cli.conftest import SPEC

TRAINED = ["plan", "llama-3.1-8b", "h100-sxm"]
LOAD = ["load", "--url", "http://127.0.0.1:1", "--workload", SPEC]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "PLAN", "--workload", SPEC, "--policy", "shortest", "--queueing", "fcfs"], "give --queueing"),
        (["run", "PLAN", "--workload", SPEC, "--tls-ca", "ca.pem"], "--tls-ca: a run in this process"),
        (["run", "PLAN", "--workload", SPEC, "--api-key", "x", "--engine", "inprocess"], "--api-key: a run in"),
        (["run", "PLAN", "--workload", SPEC, "--engine", "inprocess", "--cluster", "localhost:1"], "contradict"),
        (["up", "PLAN", "--detach"], "--detach: only for containers"),
        (["up", "PLAN", "--name", "x", "--publish", "0.0.0.0"], "--publish: only for containers"),
        (["up", "PLAN", "--name", "a/b"], "--name: not 1 to 40 letters"),
        ([*TRAINED, "--training", "-o", "t.json"], "-o: not for a training run"),
        ([*TRAINED, "--training", "--explain"], "--explain: not for a training run"),
        ([*TRAINED, "--zero", "3", "--tokens", "9", "--price", "2"], "--zero, --tokens, --price: only for a training"),
        ([*TRAINED, "--consecutive"], "--consecutive is for --placement by-kind"),
        ([*TRAINED, "--consecutive", "--placement", "interleaved"], "--consecutive is for --placement by-kind"),
        ([*LOAD, "--think", "5s"], "add --turns 2"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    words: list[str], says: str, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stageline([plan if word == "PLAN" else word for word in words]) == 2
    assert says in capsys.readouterr().err


def test_what_the_environment_says_is_for_other_commands(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGELINE_TLS_CA", "ca.pem")
    monkeypatch.setenv("STAGELINE_API_KEY", "secret")
    assert stageline(["run", plan, "--workload", SPEC]) == 0
