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
    "poisson": ("rate", "requests", "input", "output", "max_output", "trace", "model"),
    "gamma": ("rate", "cv", "requests", "input", "output", "max_output", "trace", "model"),
    "constant": ("rate", "requests", "input", "output", "max_output", "trace", "model"),
    "closed": ("users", "think", "requests", "input", "output", "max_output", "trace", "model"),
    "sessions": (
        "system_prompts",
        "users",
        "system",
        "question",
        "output",
        "max_output",
        "turns",
        "rate",
        "seconds",
        "block",
        "requests",
        "model",
    ),
}
_KIND = re.compile(r"([a-z]+):(.*)", re.DOTALL)
_CALL = re.compile(r"([a-z]+)\((.*)\)", re.DOTALL)
_INTEGER = re.compile(r"[0-9]+")
_MAX_DIGITS = 18
EXAMPLE = "poisson:rate=4,input=1024,output=128"


class SyntheticSpec(msgspec.Struct, frozen=True):
    """One synthetic workload: its kind, and its options as texts."""

    text: str
    kind: str
    options: dict[str, str]

    def option(self, name: str) -> str:
        """How error messages name an option."""
        return f"workload {self.text!r}, {name}"

    def required(self, name: str) -> str:
        """The text of an option that has no default. Raises BadInput when it is missing."""
        value = self.options.get(name)
        if value is None:
            raise BadInput(f"workload {self.text!r}", None, f"{self.kind} needs {name}=", f"write it like {EXAMPLE}")
        return value

    def models(self) -> tuple[str, ...]:
        """The models that requests name in turn: `model=a+b`; one without a name by default. Raises BadInput."""
        names = tuple(self.options.get("model", "").split("+"))
        if "model" in self.options and not all(names):
            raise BadInput(self.option("model"), self.options["model"], "a model has no name", "write it like a+b")
        return names

    def integer(self, name: str, default: int | None) -> int | None:
        """An option that is a positive integer. Raises BadInput."""
        text = self.options.get(name)
        return default if text is None else positive_integer(text, self.option(name))


def parse_spec(text: str) -> SyntheticSpec | None:
    """The spec, or None when the text begins with none of KINDS (then it is a file). Raises BadInput."""
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
    if "trace" in options and {"input", "output", "max_output", "model"} & options.keys():
        raise BadInput(
            f"workload {text!r}", None, "trace= brings its own lengths and models",
            "drop input=, output=, max_output= and model=",
        )  # fmt: skip
    return SyntheticSpec(text, kind, options)


def parse_call(text: str, place: str) -> tuple[str, list[str]] | None:
    """`name(a, b)` → its name and arguments; None when the text is not a call."""
    match = _CALL.fullmatch(text)
    return None if match is None else (match[1], split_arguments(match[2], place))


def split_arguments(text: str, place: str) -> list[str]:
    """Splits at commas outside parentheses. Raises BadInput for unbalanced parentheses."""
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
    """A whole number from 1 up. Raises BadInput at `place`."""
    if _INTEGER.fullmatch(text) and len(text) > _MAX_DIGITS:
        raise BadInput(place, text, "too large", f"give at most {_MAX_DIGITS} digits")
    if not _INTEGER.fullmatch(text) or not int(text):
        raise BadInput(place, text, "not a positive whole number", "write it like 64")
    return int(text)
