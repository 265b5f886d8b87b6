"""What every test may ask for, and how a property that failed is run again."""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = (
    "tests/browser/",
    "tests/cluster/",
    "tests/containers/",
)  # one worker runs all of these, so that they never share the host

# How long an example takes says more about what else the host does than about the code: timing belongs in bench/.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

# A job that was started with nohup or in the background ignores these, and so would every process that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signals() -> Generator[None]:
    """A command that has ended in this process ignores signals, and so would what the next test starts."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The command that replays a failed property with the same draws. In CI they always are: there is no seed then."""
    report = yield
    test = getattr(item, "obj", None)
    if report.failed and getattr(test, "is_hypothesis_test", False):
        seed = getattr(test, "_hypothesis_internal_use_generated_seed", None)
        command = f".venv/bin/pytest -n 0 '{item.nodeid}'"
        fixed = settings.get_profile("house").derandomize
        report.sections.append(("replay", f"CI=true {command}" if fixed else f"{command} --hypothesis-seed={seed}"))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread tests over the workers one by one, except those that start processes."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "processes" if nodeid.startswith(PROCESSES) else nodeid

    return Scheduler(config, log)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public configs, traces and measurements, which is not part of the repository.

    STAGELINE_SHARED_DATA names it; otherwise it is looked for beside the checkout. Where it is missing the test is
    skipped, in CI it fails.
    """
    data = Path(os.environ.get("STAGELINE_SHARED_DATA") or ROOT.parent / "shared" / "data")
    if not data.is_dir():
        missing = f"no public data in {data}: set STAGELINE_SHARED_DATA to the folder that holds configs/ and traces/"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    return data
