"""The scripts that readers copy run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

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
