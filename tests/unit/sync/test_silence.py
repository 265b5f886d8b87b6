"""Who owes something, and for how long."""

from stageline.sync.silence import Silence


def test_a_debt_grows_until_it_is_paid() -> None:
    silence = Silence[str](10)
    silence.tick(0, {"a": 1, "b": 1})
    silence.tick(5, {"a": 1, "b": 1})
    silence.tick(10, {"a": 1, "b": 2})
    assert silence.owed_ns == {"a": 10, "b": 0}
    silence.tick(15, {"b": 2})
    assert silence.owed_ns == {"b": 5}
    silence.tick(20, {"a": 1, "b": 2})
    assert silence.owed_ns == {"a": 0, "b": 10}


def test_time_in_which_nobody_listened_does_not_count() -> None:
    silence = Silence[str](10)
    silence.tick(0, {"a": 1})
    silence.tick(1_000_000, {"a": 1})
    assert silence.owed_ns == {"a": 10}
