"""The text of a synthetic workload: `poisson:rate=4,input=lognormal(1024,cv=0.8),output=128`.

spec      = kind ":" [option *("," option)]       kind: poisson, gamma, constant, closed, sessions
option    = name "=" value
length    = integer | "uniform(" low "," high ")" | "lognormal(" mean "," spread ")" | "trace(" file ")"
spread    = sigma | "sigma=" sigma | "cv=" ratio
"""

import re

import msgspec

from stageline.errors import BadInput

KINDS: dict[str, tuple[str, ...]] = {
    "poisson": ("rate", "requests", "input", "output", "trace"),
    "gamma": ("rate", "cv", "requests", "input", "output", "trace"),
    "constant": ("rate", "requests", "input", "output", "trace"),
    "closed": ("users", "think", "requests", "input", "output"),
    "sessions": (
        "system_prompts",
        "users",
        "system",
        "question",
        "output",
        "turns",
        "rate",
        "seconds",
        "block",
        "requests",
    ),
}
_KIND = re.compile(r"([a-z]+):(.*)", re.DOTALL)
_CALL = re.compile(r"([a-z]+)\((.*)\)", re.DOTALL)
_INTEGER = re.compile(r"[0-9]{1,200}")
_MAX_INTEGER = 10**18
EXAMPLE = "poisson:rate=4,input=1024,output=128"


class Spec(msgspec.Struct, frozen=True):
    """The options of one synthetic workload as texts."""

    text: str
    kind: str
    options: dict[str, str]

    def place(self, name: str) -> str:
        """Where an option stands, for messages."""
        return f"workload {self.text!r}, {name}"

    def required(self, name: str) -> str:
        """An option that has no default."""
        value = self.options.get(name)
        if value is None:
            raise BadInput(f"workload {self.text!r}", None, f"{self.kind} needs {name}=", f"write it like {EXAMPLE}")
        return value

    def integer(self, name: str, default: int | None) -> int | None:
        """A positive integer option."""
        text = self.options.get(name)
        return default if text is None else positive_integer(text, self.place(name))


def parse_spec(text: str) -> Spec | None:
    """The spec, or None when the text names none of KINDS (then it is a file). BadInput names the option at fault."""
    match = _KIND.fullmatch(text)
    if match is None or match[1] not in KINDS:
        return None
    kind, options = match[1], dict[str, str]()
    for part in split_arguments(match[2], f"workload {text!r}"):
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not value:
            raise BadInput(f"workload {text!r}", part, "not a name=value pair", f"write it like {EXAMPLE}")
        if name not in KINDS[kind]:
            raise BadInput(f"workload {text!r}", name, "unknown option", f"{kind} knows {', '.join(KINDS[kind])}")
        if name in options:
            raise BadInput(f"workload {text!r}", name, "given twice", "give it once")
        options[name] = value
    if "trace" in options and {"input", "output"} & options.keys():
        raise BadInput(f"workload {text!r}", None, "trace= brings its own lengths", "drop input= and output=")
    return Spec(text, kind, options)


def parse_call(text: str, place: str) -> tuple[str, list[str]] | None:
    """`name(a, b)` → its name and arguments; None when the text is no call."""
    match = _CALL.fullmatch(text)
    return None if match is None else (match[1], split_arguments(match[2], place))


def split_arguments(text: str, place: str) -> list[str]:
    """Splits at the commas that stand outside parentheses."""
    parts, depth, start = list[str](), 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    if depth:
        raise BadInput(place, text, "unbalanced parentheses", "close every ( with one )")
    parts.append(text[start:].strip())
    return parts if parts != [""] else []


def positive_integer(text: str, place: str) -> int:
    """A whole number from 1 up."""
    if not _INTEGER.fullmatch(text) or not int(text):
        raise BadInput(place, text, "not a positive whole number", "write it like 64")
    if int(text) >= _MAX_INTEGER:
        raise BadInput(place, text, "too large", f"stay below {_MAX_INTEGER:,}")
    return int(text)
