"""One line per event, whatever is in it."""

import json
import logging

import pytest

from stageline.runtime.logs import JsonFormatter, TextFormatter


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "here", "levelname": "INFO", "msg": "two words", "created": 0.25, "msecs": 250}
    )
    vars(made).update(extra)
    return made


def test_text():
    line = TextFormatter().format(record(stage=3, path='a "b"\nc', empty=""))
    assert line == (
        "time=1970-01-01T00:00:00.250Z level=info source=here message=\"two words\" stage=3 "
        'path="a \\"b\\"\\nc" empty=""'
    )  # fmt: skip


def test_json():
    fields = json.loads(JsonFormatter().format(record(stage=3)))
    assert fields == {
        "time": "1970-01-01T00:00:00.250Z", "level": "info", "source": "here", "message": "two words", "stage": 3,
    }  # fmt: skip


def test_a_traceback_stays_on_its_line():
    try:
        raise ValueError("no")
    except ValueError as error:
        made = record(exc_info=(ValueError, error, error.__traceback__))
    line = TextFormatter().format(made)
    assert "\n" not in line
    assert "ValueError: no" in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_line_ends_inside(formatter):
    assert "\n" not in formatter.format(record(x="a\nb"))
