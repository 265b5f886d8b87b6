"""Some of the accidents of `scripts/accidents`: after each the cluster serves again, and its books are right."""

from pathlib import Path

from tests.cluster.accidents.leaks import Size, grown
from tests.cluster.accidents.trial import trial

SEED, ACCIDENTS = 1, 10


async def test_accidents_leave_nothing_wrong(tmp_path: Path) -> None:
    async with trial(tmp_path, SEED) as cluster:
        found = [await cluster.accident(number) for number in range(ACCIDENTS)]
    assert cluster.leaks.errors() == []
    assert [(what, errors) for what, errors in found if errors] == []


def test_what_goes_again_is_no_leak() -> None:
    def sizes(*descriptors: int) -> list[Size]:
        return [Size(number, 1 << 20) for number in descriptors]

    assert grown(1, sizes(26, 27, 29, 28, 33, 40, 30, 41, 33, 29)) == []
    assert grown(1, sizes(*range(26, 46, 2), 46, 48, 50)) != []
