"""Ctrl-C while a command is still being imported."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "msgspec":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv[1:] = {words}
from stageline.cli.start import main
main()
"""


def interrupted(*words: str, ignored: bool = False) -> tuple[int, str, str]:
    """Exit code and output; with `ignored` as in a background job of a shell."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(words=list(words))], capture_output=True, text=True, check=False
        )
    finally:
        signal.signal(signal.SIGINT, before)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("devices",), 130),
        (("run", "plan.json"), 130),
        (("up", "plan.json"), 0),
        (("up", "plan.json", "--docker", "--detach"), 130),
        (("up", "plan.json", "--docker", "-d"), 130),
    ],
)
def test_it_ends_without_a_word(words: tuple[str, ...], code: int) -> None:
    assert interrupted(*words) == (code, "", "")


def test_a_background_job_goes_on_except_up() -> None:
    assert interrupted("--version", ignored=True)[0] == 0
    assert interrupted("up", "plan.json", ignored=True) == (0, "", "")
