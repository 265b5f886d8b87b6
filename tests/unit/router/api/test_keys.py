"""Keys and rate limits, on a clock of the test."""

import pytest

from router.api.keys import AccessControl, RateLimited
from stageline.errors import BadInput, Unauthenticated


class Wall:
    """A clock that the test sets."""

    time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


def test_any_of_the_keys_is_let_in() -> None:
    access = AccessControl("one, two")
    assert [access.check(f"Bearer {key}") for key in ("one", "two")] == ["one", "two"]
    for wrong in ("", "Bearer", "Bearer one, two", "Bearer three", "Bearer on\udce9"):
        with pytest.raises(Unauthenticated, match="Incorrect API key"):
            access.check(wrong)
    assert AccessControl().check("Bearer whatever") == ""


def test_calls_come_back_with_time() -> None:
    wall = Wall()
    access = AccessControl("k", "3/m", now_s=wall)
    for _ in range(3):
        access.admit("Bearer k", "host")
    with pytest.raises(RateLimited, match="3/m calls; the next one is possible in 20 s") as limited:
        access.admit("Bearer k", "another host")
    assert (limited.value.retry_after_s, limited.value.http_status) == (20, 429)
    wall.time_s += 19
    with pytest.raises(RateLimited, match="in 1 s"):
        access.admit("Bearer k", "host")
    wall.time_s += 1
    access.admit("Bearer k", "host")
    wall.time_s += 3600
    for _ in range(3):
        access.admit("Bearer k", "host")
    with pytest.raises(RateLimited):
        access.admit("Bearer k", "host")


def test_without_keys_addresses_count() -> None:
    access = AccessControl(rate_limit="1/s", now_s=Wall())
    access.admit("", "a")
    access.admit("Bearer not checked", "b")
    with pytest.raises(RateLimited):
        access.admit("Bearer another", "b")


@pytest.mark.parametrize("text", ["3", "0/s", "-1/s", "1.5/s", "3/d", "x/s", "9999999999/s", "3 / m"])
def test_limits_that_mean_nothing(text: str) -> None:
    with pytest.raises(BadInput, match="--rate-limit"):
        AccessControl(rate_limit=text)
