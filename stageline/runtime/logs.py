"""Logs of a server: one line per event on stderr, as key=value or JSON."""

import json
import logging
import sys
import time
from typing import Literal

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What a line says: time, level, source, message and whatever was given as `extra`."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
    fields: dict[str, object] = {
        "time": stamp,
        "level": record.levelname.lower(),
        "source": record.name,
        "message": record.getMessage(),
    }
    fields |= {key: value for key, value in vars(record).items() if key not in _OWN}
    if record.exc_info:
        fields["traceback"] = logging.Formatter().formatException(record.exc_info)
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return json.dumps(fields_of(record), default=str)


class TextFormatter(logging.Formatter):
    """key=value pairs; values with spaces, quotes or line ends are quoted as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in fields_of(record).items())


def _quoted(text: str) -> str:
    plain = text and text.isprintable() and not any(c in text for c in ' "=\\')
    return text if plain else json.dumps(text, ensure_ascii=False)


def configure(style: Literal["text", "json"], level: str) -> None:
    """Sends everything to stderr; called once, by a server's `main`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def say(sentence: str) -> None:
    """A word from a command to the person who runs it: one line on stderr."""
    sys.stderr.write(f"stageline: {sentence}\n")
