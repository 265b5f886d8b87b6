"""Settings as older versions wrote them."""

import msgspec
import pytest

from stageline.engine.settings import Scheduling, read_scheduling


def test_a_users_class_in_a_field_of_its_own_moves_to_queueing() -> None:
    assert read_scheduling('{"queueing": "shortest", "policy": null}') == Scheduling(queueing="shortest")
    assert read_scheduling('{"queueing": "shortest", "policy": "a.b:C"}') == Scheduling(queueing="a.b:C")


def test_what_is_written_today_is_read_and_names_no_policy() -> None:
    scheduling = Scheduling(queueing="a.b:C", credits=3)
    written = msgspec.json.encode(scheduling)
    assert b"policy" not in written
    assert read_scheduling(written) == scheduling


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[]", "Expected `object`"), ('{"credits": 0}', r"\$.credits"), ('{"polcy": 1}', "polcy"), ("{", "truncated")],
)
def test_damaged_settings(text: str, reason: str) -> None:
    with pytest.raises(msgspec.MsgspecError, match=reason):
        read_scheduling(text)
