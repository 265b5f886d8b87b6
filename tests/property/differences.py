"""Where two results part: named to the field, whatever runs the comparison (pytest explains only its own asserts)."""

from collections.abc import Mapping, Sequence

import msgspec


def same(what: str, got: object, wanted: object) -> None:
    """Raises AssertionError with the first difference."""
    if got != wanted:
        raise AssertionError(f"{what}{difference(got, wanted)}")


def difference(got: object, wanted: object) -> str:
    """The way to the first field that differs, and both values."""
    if isinstance(got, msgspec.Struct) and type(got) is type(wanted):
        got, wanted = msgspec.structs.asdict(got), msgspec.structs.asdict(wanted)  # type: ignore[arg-type]
    if isinstance(got, Mapping) and isinstance(wanted, Mapping):
        for key in [*wanted, *got]:
            if key not in got or key not in wanted:
                return f"[{key!r}]: only {'wanted' if key in wanted else 'got'}"
            if got[key] != wanted[key]:
                return f"[{key!r}]{difference(got[key], wanted[key])}"
    if isinstance(got, Sequence) and isinstance(wanted, Sequence) and not isinstance(got, str):
        for i, (one, other) in enumerate(zip(got, wanted, strict=False)):
            if one != other:
                return f"[{i}]{difference(one, other)}"
        return f": {len(got)} of them, wanted {len(wanted)}"
    return f": got {got!r}, wanted {wanted!r}"
