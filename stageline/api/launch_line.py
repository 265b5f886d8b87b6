"""Launch lines of serving engines (`vllm serve ...`, SGLang's, TensorRT-LLM's), read flag by flag.

Every flag of a line is used, named as one that changes nothing emulated, or refused by name. Flags and their meaning:
docs.vllm.ai (vllm serve), docs.sglang.io (server arguments), the TensorRT-LLM documentation (trtllm-serve).
"""

import difflib
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stageline.api.launch_flags import ENGINES, Dialect, Switch, Value
from stageline.errors import BadInput

PLACE = "--like"


class LaunchLine(NamedTuple):
    """What a line asks for, in the keywords of the Python API."""

    serving_engine: str  # its profile in the catalogue
    model: str
    keywords: dict[str, Any]  # as `plan_model` takes them
    unused: tuple[str, ...]  # flags that change nothing that is emulated


def parse_launch_line(text: str) -> LaunchLine:
    """Read a launch line. Raises BadInput that names the flag, its value and the way out."""
    try:
        words = shlex.split(text, comments=False)
    except ValueError as error:
        raise BadInput(PLACE, text, f"not a command line: {error}", "quote it as your shell would") from None
    words = _without_environment([w for w in words if w != "\n"])
    dialect, rest = _dialect(text, words)
    found: dict[str, Any] = {}
    models, unused = [], []
    for flag, value in _pairs(dialect, rest):
        if flag is None or flag in dialect.model_flags:
            models.append(value)
        elif flag in dialect.unused or flag in dialect.takes_value:
            unused.append(flag)
        else:
            _apply(dialect, flag, value, found)
    try:
        found = dialect.together(found)
    except ValueError as error:
        raise BadInput(PLACE, text, str(error), "change these flags, or leave them out") from None
    if len(models) != 1 or not models[0]:
        reason = "names no model" if not models else f"names several models: {', '.join(map(str, models))}"
        raise BadInput(PLACE, text, reason, f"write it like {dialect.example}")
    return LaunchLine(dialect.name, str(models[0]), found, tuple(dict.fromkeys(unused)))


def _without_environment(words: list[str]) -> list[str]:
    """A line without leading NAME=value words, which set the environment of the command."""
    start = 0
    while start < len(words) and "=" in words[start] and words[start].split("=")[0].isidentifier():
        start += 1
    return words[start:]


def _dialect(text: str, words: list[str]) -> tuple[Dialect, list[str]]:
    for dialect in ENGINES:
        for command in dialect.commands:
            if tuple(words[: len(command)]) == command:
                return dialect, words[len(command) :]
    known = ", ".join(" ".join(d.commands[0]) for d in ENGINES)
    raise BadInput(PLACE, text, "not a launch line of a known serving engine", f"it begins with one of: {known}")


def _pairs(dialect: Dialect, words: list[str]) -> Iterator[tuple[str | None, str | None]]:
    """(flag, value) of each flag in the engine's own spelling, (None, word) of what belongs to none."""
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not word.startswith("-") or word == "-":
            yield None, word
            continue
        name, joined, value = word.partition("=")
        flag = _spelled(dialect, name)
        if flag in dialect.values or flag in dialect.model_flags or flag in dialect.takes_value:
            if not joined:
                if not queue:
                    raise BadInput(f"{PLACE} {name}", None, "its value is missing", "give it behind the flag")
                value = queue.pop(0)
            rule = dialect.values.get(flag)
            while rule is not None and rule.several and queue and queue[0].isdecimal():
                value = f"{value},{queue.pop(0)}"
            yield flag, value
        elif flag in dialect.switches or flag in dialect.unused:
            if joined and value.lower() not in ("true", "false"):
                raise BadInput(f"{PLACE} {name}", value, "this flag takes no value", "leave the value out")
            yield flag, value or "true"
        else:
            raise _unknown(dialect, name)


def _spelled(dialect: Dialect, name: str) -> str:
    """The engine's main spelling: its short names and `_` for `-` are the same flag."""
    flag = name if name.count("-") == 1 and len(name) <= 4 else name.replace("_", "-")
    return dialect.synonyms.get(flag, flag)


def _unknown(dialect: Dialect, name: str) -> BadInput:
    known = [*dialect.values, *dialect.switches, *dialect.unused, *dialect.takes_value, *dialect.refused]
    flag = _spelled(dialect, name)
    if flag in dialect.refused:
        return BadInput(f"{PLACE} {name}", None, f"not emulated: {dialect.refused[flag]}", "leave it out")
    near = difflib.get_close_matches(flag, known, 1)
    hint = f"did you mean {near[0]}?" if near else "leave it out, if it changes neither speed nor memory"
    return BadInput(f"{PLACE} {name}", None, f"not a flag of {dialect.name} that is known here", hint)


def _apply(dialect: Dialect, flag: str, value: str | None, found: dict[str, Any]) -> None:
    if flag in dialect.switches:
        switch: Switch = dialect.switches[flag]
        if value != "false":
            found.update(switch.sets)
        return
    rule: Value = dialect.values[flag]
    try:
        wanted = rule.read(value or "")
    except ValueError as error:
        raise BadInput(f"{PLACE} {flag}", value, str(error) or "cannot be read", rule.way_out) from None
    found.update(wanted if isinstance(wanted, Mapping) else {rule.keyword: wanted})
