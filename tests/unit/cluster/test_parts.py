"""Which cluster and which of its parts a command means."""

import pytest

from stageline.cluster.parts import choose, find_part
from stageline.errors import UsageError

PARTS = ("router", "stage-00", "stage-01", "stage-10")


class Stub:
    """A cluster with a name only."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind


LOCAL, OTHER, DOCKER = Stub("local", "local processes"), Stub("two", "local processes"), Stub("two", "Docker")


@pytest.mark.parametrize(
    ("said", "meant"), [("0", "stage-00"), ("10", "stage-10"), ("stage-01", "stage-01"), ("router", "router")]
)
def test_parts_by_name_and_by_index(said: str, meant: str) -> None:
    assert find_part(said, PARTS, "local") == meant


@pytest.mark.parametrize("said", ["2", "stage-1", "", "Router"])
def test_an_unknown_part_is_named_with_those_that_there_are(said: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_part(said, PARTS, "local")
    assert str(refused.value) == f"cluster 'local' has no part {said!r}; it has router, stage-00, stage-01, stage-10"


def test_the_only_one_needs_no_name() -> None:
    assert choose([LOCAL], "") is LOCAL
    assert choose([LOCAL, OTHER], "two") is OTHER


@pytest.mark.parametrize(
    ("running", "name", "words"),
    [
        ([], "", "no cluster runs here; start one with stageline up PLAN"),
        ([], "x", "no cluster 'x' runs here; start one"),
        ([LOCAL], "x", "no cluster 'x' runs here; there is 'local' (local processes)"),
        ([LOCAL, DOCKER], "", "2 clusters run here: 'local' (local processes), 'two' (Docker); choose one with --name"),
        ([OTHER, DOCKER], "two", "2 clusters run here: 'two' (local processes), 'two' (Docker)"),
    ],
)
def test_what_can_not_be_chosen(running: list[Stub], name: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        choose(running, name)
    assert words in str(refused.value)
