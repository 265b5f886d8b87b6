"""Sources of the catalogue's numbers: exactly one covers each number, and its mark says how reliable it is."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from stageline.errors import BadInput

Mark = Literal["published", "second-hand", "computed", "recalled", "assumed"]


class Citation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One [[source]] and the fields that it covers: dotted paths or their parents; "*" covers all other numbers."""

    mark: Mark
    where: str
    covers: tuple[str, ...]

    def reaches(self, path: str) -> bool:
        """Whether `covers` names `path` or a parent of it."""
        return any(path == c or path.startswith(f"{c}.") for c in self.covers)


def numbers(value: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of all numbers in a document, without list positions."""
    if isinstance(value, dict):
        for key, child in value.items():
            if path or key != "source":
                yield from numbers(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for child in value:
            yield from numbers(child, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def check_sources(document: Any, sources: tuple[Citation, ...], place: str) -> None:
    """Refuse a number with no source or with several. Raises BadInput naming it."""
    for path in numbers(document):
        found = [s for s in sources if s.reaches(path)] or [s for s in sources if "*" in s.covers]
        if len(found) != 1:
            reason = "no [[source]] covers this number" if not found else "several [[source]] cover this number"
            raise BadInput(f"{place}: $.{path}", None, reason, 'name it in the `covers` of one, or use covers = ["*"]')


_NOT_SETTINGS = ("name", "title", "left_out", "source")


def check_settings(document: dict[str, Any], sources: tuple[Citation, ...], place: str) -> None:
    """Refuse a setting with no source or with several, whatever its type. Raises BadInput naming it."""
    for path in (name for name in document if name not in _NOT_SETTINGS):
        found = [s for s in sources if s.reaches(path)] or [s for s in sources if "*" in s.covers]
        if len(found) != 1:
            reason = "no [[source]] covers this setting" if not found else "several [[source]] cover this setting"
            raise BadInput(f"{place}: $.{path}", None, reason, 'name it in the `covers` of one, or use covers = ["*"]')


def source_of(path: str, sources: tuple[Citation, ...]) -> Citation | None:
    """The source of a number; None for a default that no source covers."""
    specific = next((s for s in sources if s.reaches(path)), None)
    return specific or next((s for s in sources if "*" in s.covers), None)
