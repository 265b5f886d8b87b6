"""Some of the accidents of `scripts/accidents`: after each the cluster serves again, and its books are right."""

from pathlib import Path

from tests.cluster.accidents.trial import trial

SEED, ACCIDENTS = 1, 10


async def test_accidents_leave_nothing_wrong(tmp_path: Path) -> None:
    async with trial(tmp_path, SEED) as cluster:
        found = [await cluster.accident(number) for number in range(ACCIDENTS)]
    assert cluster.leaks.errors() == []
    assert [(what, errors) for what, errors in found if errors] == []
