"""The limit of open files is raised, and coming near it is said once."""

import logging
import resource

import pytest

from stageline.runtime import descriptors
from stageline.runtime.descriptors import DescriptorWatch, open_files, raise_limit


@pytest.mark.parametrize(
    ("soft", "hard", "set_to"),
    [
        (1024, 4096, 4096),
        (1024, resource.RLIM_INFINITY, descriptors.MOST),
        (1024, 1 << 30, descriptors.MOST),
        (4096, 4096, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_soft_limit_becomes_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, set_to: int | None
) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: seen.append(limits))
    assert raise_limit() == (set_to or (descriptors.MOST if soft == resource.RLIM_INFINITY else soft))
    assert seen == ([] if set_to is None else [(set_to, hard)])


def test_coming_near_it_is_said_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = DescriptorWatch(1000)
    for count in (10, 899, 900, 950, 1000, 100, 999):
        watch.see(count)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "this process is near its limit of open files",
        "this process is far from its limit of open files again",
        "this process is near its limit of open files",
    ]


def test_open_files_are_counted() -> None:
    before = open_files(1000)
    with open("/dev/null"):  # noqa: PTH123
        after = open_files(1000)
    assert before is not None and after == before + 1
