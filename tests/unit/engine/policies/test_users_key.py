"""Errors in a user's own queueing class: one line that names the class, the request and the error."""

from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from tests.integration.cli.conftest import PLAN

KEY = "class Mine:\n    def key(self, request):\n        return "
STATE_AWARE = """from stageline.engine.policies.queueing import StateAwarePolicy
class Mine(StateAwarePolicy):
    def key(self, request, state):
        return [1, 'a'][request.index % 2]
"""


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("1 / 0\n", "importing it failed: ZeroDivisionError: division by zero"),
        ("class Mine:\n  def key(self)\n", "importing it failed: SyntaxError"),
        ("raise SystemExit(0)\n", "importing it failed: SystemExit: 0"),
        (KEY + "0\n    def __init__(self):\n        self.x = {}['y']\n", "constructing it failed: KeyError: 'y'"),
        (KEY + "1 / request.index\n", "key of request 0: ZeroDivisionError"),
        (KEY + "request.nothing\n", "key of request 0: AttributeError"),
        (KEY + "exit(0)\n", "key of request 0: SystemExit"),
        (KEY + "None\n", "key of request 0: None can't be compared"),
        (KEY + "float('nan')\n", "key of request 0: nan has no order"),
        (KEY + "(request.index, float('nan'))\n", "key of request 0: (0, nan) has no order"),
        (KEY + "[1, 'a'][request.index % 2]\n", "1 and 'a' can't be compared"),
        (KEY + "(0, [1, 'a'][request.index % 2])\n", "can't be compared"),
        (STATE_AWARE, "'a' can't be compared"),
    ],
)
def test_a_users_error_is_one_line(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"users_{abs(hash(source))}"
    (tmp_path / f"{module}.py").write_text(source)
    (tmp_path / "p.json").write_bytes(PLAN.canonical())
    monkeypatch.syspath_prepend(tmp_path)
    spec = "constant:rate=1000000000,requests=30,input=40,output=9"
    assert stageline(["run", str(tmp_path / "p.json"), "--workload", spec, "--queueing", f"{module}:Mine"]) == 2
    told = capsys.readouterr().err
    assert f"--queueing {module}:Mine" in told
    assert says in told
    assert len(told.splitlines()) == 1
