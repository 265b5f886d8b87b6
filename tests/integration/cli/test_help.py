"""What `--help` says: one voice, in groups, every choice once; and numbers as they are written."""

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from cyclopts import App, Token
from cyclopts.argument import Argument

from router.settings import RouterSettings
from stage_server.settings import StageSettings
from stageline.cli.main import app
from stageline.errors import BadInput

VOICE = re.compile(r"(?:[A-Z]|gRPC )[^\n]*[^.\s]\.")
SEVERAL = ("plan", "run", "up", "load", "search")  # commands with so many flags that groups are needed
SHARED = {"Parameters", "Arguments"}  # what cyclopts calls a flag without a group


def commands(found: App = app, name: str = "stageline") -> Iterator[tuple[str, App]]:
    """Every command by its whole name, subcommands included."""
    yield name, found
    for word in found:
        if not word.startswith("-"):
            yield from commands(found[word], f"{name} {word}")


def arguments(command: App) -> list[Argument]:
    """Its flags and positional arguments, as they are shown."""
    return [a for a in command.assemble_argument_collection() if a.show] if command.default_command else []


EVERY = [(f"{name} {argument.name}", argument) for name, command in commands() for argument in arguments(command)]


def groups(command: str) -> dict[str, list[str]]:
    """Names of its flags by the groups that `--help` shows them in."""
    found: dict[str, list[str]] = {}
    for argument in arguments(app[command]):
        (group,) = argument.parameter.group or (None,)
        found.setdefault(str(getattr(group, "name", group)), []).append(argument.name)
    return found


def test_there_are_many() -> None:
    assert len(EVERY) > 150


def test_flags_speak_in_one_voice() -> None:
    """A capital letter first, a full stop last."""
    texts = {name: argument.parameter.help or "" for name, argument in EVERY}
    assert {name: text for name, text in texts.items() if not VOICE.fullmatch(text)} == {}


def test_a_command_speaks_in_the_same_voice() -> None:
    silent = [name for name, command in commands() if not VOICE.fullmatch((command.help or "").split("\n")[0])]
    assert silent == []


@pytest.mark.parametrize("kind", [RouterSettings, StageSettings])
def test_a_setting_of_a_server_speaks_in_the_same_voice(kind: type[msgspec.Struct]) -> None:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        (meta,) = (m for m in hint.__metadata__ if isinstance(m, msgspec.Meta))
        assert VOICE.fullmatch(str(meta.description)), name


def test_choices_are_printed_once() -> None:
    """cyclopts lists them; a text that lists them again would have to be kept in step."""
    for name, argument in EVERY:
        for choices in _choices(argument.hint):
            listed = r"(?:, | or |, or )".join(rf"{re.escape(choice)}(?: \([^)]*\))?" for choice in choices)
            assert len(choices) < 2 or not re.search(listed, argument.parameter.help or ""), name


def _choices(hint: Any) -> Iterator[tuple[str, ...]]:
    if get_origin(hint) is Literal:
        yield get_args(hint)
    else:
        for part in get_args(hint):
            yield from _choices(part)


def test_whole_numbers_are_not_rounded() -> None:
    """The parser's own conversion takes 2.7 for 3 and 2.5 for 2."""
    for name, argument in EVERY:
        kinds = {argument.hint, *get_args(argument.hint)}
        if not kinds & {int, float}:
            continue
        convert = argument.parameter.converter
        assert callable(convert), f"{name}: see stageline/cli/numbers.py"
        assert convert(argument.hint, [Token(keyword=argument.name, value="8")]) == 8
        for text in ("2.7", "7/2", "x", "nan", "1e400") if int in kinds else ("x", "nan", "inf", "1e400"):
            with pytest.raises(BadInput, match=f"^{argument.name}: not a .*number"):
                convert(argument.hint, [Token(keyword=argument.name, value=text)])


@pytest.mark.parametrize("command", SEVERAL)
def test_long_lists_of_flags_are_in_groups(command: str) -> None:
    found = groups(command)
    shared = [name for name in found.pop("Parameters", []) + found.pop("Arguments", []) if name.startswith("--")]
    assert set(shared) <= {"--plan"}
    assert len(found) >= 4
    assert max(map(len, found.values())) <= 16


@pytest.mark.parametrize("command", ["run", "up", "search"])
def test_flags_keep_their_own_group_inside_others(command: str) -> None:
    assert groups(command)["Speculative decoding"] == ["--speculate", "--acceptance", "--draft-cost"]


def test_the_groups_of_plan() -> None:
    assert set(groups("plan")) - SHARED - {"None"} == {
        "Model", "Devices and parallelism", "Memory and KV cache", "Network", "Cost", "Microbatches", "Training",
        "Output",
    }  # fmt: skip
