"""Launch lines of serving engines (`vllm serve ...`, SGLang's, TensorRT-LLM's), read flag by flag.

Every flag of a line is used, named as one that changes nothing emulated, or refused by name. Flags and their meaning:
docs.vllm.ai (vllm serve), docs.sglang.io (server arguments), the TensorRT-LLM documentation (trtllm-serve).
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stageline.api.helm_values import line_of_file, looks_like_values
from stageline.api.launch_command import PLACE, find_command
from stageline.api.launch_flags import ENGINES, Dialect, Switch, Value
from stageline.api.launch_unused import SEVERAL
from stageline.errors import BadInput

MIN_BEGINNING = 5  # characters from which on the beginning of a flag stands for it


class LaunchLine(NamedTuple):
    """What a line asks for, in the keywords of the Python API."""

    serving_engine: str  # its profile in the catalogue
    model: str
    keywords: dict[str, Any]  # as `plan_model` takes them
    unused: tuple[str, ...]  # flags that change nothing that is emulated


def parse_launch_line(text: str) -> LaunchLine:
    """Read a launch line, or a Helm values file by its path.

    Raises BadInput that names the flag, its value and the way out.
    """
    if looks_like_values(text):
        text = line_of_file(Path(text))
    command = find_command(text, [dialect.commands for dialect in ENGINES])
    dialect = ENGINES[command.engine]
    found: dict[str, Any] = {}
    models, unused = [], []
    for name, setting in command.environment.items():
        if name in dialect.environment:
            _read(dialect.environment[name], name, setting, found)
        else:
            unused.append(name)
    for flag, value in _pairs(dialect, joined(dialect, command.words)):
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
    if found.setdefault("stages", 1) > 1:  # no engine adds stages of its own
        found.setdefault("layer_partition", dialect.split)
    return LaunchLine(dialect.name, str(models[0]), found, tuple(dict.fromkeys(unused)))


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
            while flag in SEVERAL and queue and not queue[0].startswith("-"):
                queue.pop(0)
            yield flag, value
        elif flag in dialect.switches or flag in dialect.unused:
            if joined and value.lower() not in ("true", "false"):
                raise BadInput(f"{PLACE} {name}", value, "this flag takes no value", "leave the value out")
            yield flag, value or "true"
        else:
            raise _unknown(dialect, name)


def joined(dialect: Dialect, words: Sequence[str]) -> list[str]:
    """The words with one JSON value where its fields were given one by one, as --speculative-config.method mtp.

    As vLLM's parser does it: a value is JSON where it can be read as such, `+` behind a name adds to a list.
    """
    queue, rest = list(words), []
    values: dict[str, dict[str, Any]] = {}
    while queue:
        word = queue.pop(0)
        if level := re.fullmatch("-O([0-9])", word):
            rest += ["-O", level[1]]
            continue
        name, equals, value = word.partition("=")
        group, dot, path = name.partition(".")
        flag = _spelled(dialect, "-cc" if group == "-O" else group) if word.startswith("-") and dot else ""
        if flag not in dialect.json:
            rest.append(word)
            continue
        if not equals:
            if not queue:
                raise BadInput(f"{PLACE} {name}", None, "its value is missing", "give it behind the flag")
            value = queue.pop(0)
        _put(values.setdefault(flag, {}), path.split("."), value, name)
    return rest + [word for flag, fields in values.items() for word in (flag, json.dumps(fields))]


def _put(fields: dict[str, Any], path: Sequence[str], text: str, name: str) -> None:
    """Set the field at the end of a path. Raises BadInput where a value is in its way."""
    *above, last = (part.replace("-", "_") for part in path)
    for part in above:
        fields = fields.setdefault(part, {})
        if not isinstance(fields, dict):
            raise _in_its_way(name, text, part)
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    if last.endswith("+"):
        values = fields.setdefault(last[:-1], [])
        if not isinstance(values, list):
            raise _in_its_way(name, text, last[:-1])
        values.append(value)
    else:
        fields[last] = value


def _in_its_way(name: str, text: str, field: str) -> BadInput:
    return BadInput(f"{PLACE} {name}", text, f"{field} has a value of its own", "give its fields, or its value")


def _spelled(dialect: Dialect, name: str) -> str:
    """The engine's main spelling: short names, `_` for `-`, and the beginning of one flag alone are the same flag."""
    flag = name if name.count("-") == 1 and len(name) <= 4 else name.replace("_", "-")
    known = {*dialect.synonyms, *_known(dialect)}
    begun = {dialect.synonyms.get(k, k) for k in known if k.startswith(flag)} if len(flag) > MIN_BEGINNING else set()
    if flag not in known and len(begun) == 1:
        return begun.pop()
    return dialect.synonyms.get(flag, flag)


def _known(dialect: Dialect) -> list[str]:
    """The main spellings of all flags of an engine."""
    return [
        *dialect.values, *dialect.switches, *dialect.unused, *dialect.takes_value, *dialect.refused,
        *dialect.model_flags,
    ]  # fmt: skip


def _unknown(dialect: Dialect, name: str) -> BadInput:
    flag = _spelled(dialect, name)
    if flag in dialect.refused:
        return BadInput(f"{PLACE} {name}", None, f"not emulated: {dialect.refused[flag]}", "leave it out")
    near = difflib.get_close_matches(flag, _known(dialect), 1)
    hint = f"did you mean {near[0]}?" if near else "leave it out, if it changes neither speed nor memory"
    return BadInput(f"{PLACE} {name}", None, f"not a flag of {dialect.name} that is known here", hint)


def _apply(dialect: Dialect, flag: str, value: str | None, found: dict[str, Any]) -> None:
    if flag in dialect.switches:
        switch: Switch = dialect.switches[flag]
        if value != "false":
            found.update(switch.sets)
        return
    _read(dialect.values[flag], flag, value or "", found)


def _read(rule: Value, name: str, text: str, found: dict[str, Any]) -> None:
    """Add what a flag or a variable sets. Raises BadInput."""
    if text.startswith("$"):
        raise BadInput(f"{PLACE} {name}", text, "a variable of a shell", "put its value in its place")
    try:
        wanted = rule.read(text)
    except ValueError as error:
        raise BadInput(f"{PLACE} {name}", text, str(error) or "cannot be read", rule.way_out) from None
    found.update(wanted if isinstance(wanted, Mapping) else {rule.keyword: wanted})
