"""Writes YAML for people: comments, anchors, blank lines between entries."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, Union


@dataclass(frozen=True, slots=True)
class Note:
    """A value with a comment above it."""

    text: str
    value: "Yaml"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A mapping that Alias(name) refers to."""

    name: str
    value: "dict[str, Yaml]"


@dataclass(frozen=True, slots=True)
class Alias:
    """A reference to the anchor of that name."""

    name: str


class Flow(list["Yaml"]):
    """A list written on one line."""


class Spaced(dict[str, "Yaml"]):
    """A mapping written with blank lines between its entries."""


Yaml: TypeAlias = Union[str, int, float, "list[Yaml]", "dict[str, Yaml]", Note, Anchor, Alias, None]

_PLAIN = re.compile(r"[A-Za-z./_][A-Za-z0-9_./-]*")
_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_OTHER_MEANING = re.compile(r"(?i)y|n|yes|no|on|off|true|false|null|\.inf|\.nan|[.\d_]+|[.\d_]*e\d+")
_BLOCK = re.compile(r"(?=[!-~])(?:(?:[ -~]*[!-~])?\n)*[ -~]*[!-~]\n?")


def emit(document: "dict[str, Yaml]") -> str:
    """The text of a mapping; parsing it returns the same values."""
    return "\n".join(_mapping(document, "")) + "\n"


def _mapping(value: "dict[str, Yaml]", pad: str) -> Iterator[str]:
    for number, (key, entry) in enumerate(value.items()):
        if number and isinstance(value, Spaced):
            yield ""
        if isinstance(entry, Note):
            yield from (f"{pad}# {line}" for line in entry.text.splitlines())
            entry = entry.value  # noqa: PLW2901  (the same entry without its comment)
        yield from _under(f"{pad}{'<<' if key == '<<' else _scalar(key)}:", entry, pad)


def _under(head: str, value: "Yaml", pad: str) -> Iterator[str]:
    """The lines of a value after its key or dash, `head`."""
    if isinstance(value, Anchor):
        head, value = f"{head} &{value.name}", value.value
    if isinstance(value, dict) and value:
        yield head
        yield from _mapping(value, pad + "  ")
    elif isinstance(value, list) and value and not isinstance(value, Flow):
        yield head
        yield from _items(value, pad + "  ")
    elif isinstance(value, str) and "\n" in value and _BLOCK.fullmatch(value):
        yield head + (" |" if value.endswith("\n") else " |-")
        yield from (f"{pad}  {line}".rstrip() for line in value.removesuffix("\n").split("\n"))
    else:
        yield f"{head} {_inline(value)}"


def _items(value: "list[Yaml]", pad: str) -> Iterator[str]:
    for item in value:
        if isinstance(item, dict) and item:
            first, *rest = _mapping(item, pad + "  ")
            yield f"{pad}- {first.lstrip()}"
            yield from rest
        else:
            yield from _under(f"{pad}-", item, pad)


def _inline(value: "Yaml") -> str:
    if isinstance(value, Alias):
        return f"*{value.name}"
    if isinstance(value, list):
        return f"[{', '.join(_inline(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _scalar(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and not _OTHER_MEANING.fullmatch(text)
    quoted = json.dumps(text, ensure_ascii=False)
    return text if plain else _NOT_PRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
