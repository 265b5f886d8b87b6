"""The keys of a user's own queueing policy: its errors become one line that names the class and the request."""

import math
from typing import Any

from stageline.engine.types import Request
from stageline.errors import UsageError


class UsersKeys:
    """Calls `key` of a user's policy. Raises UsageError for its errors and for keys that can't be sorted."""

    def __init__(self, policy: Any) -> None:
        self._key = policy.key
        self.name = f"--queueing {type(policy).__module__}:{type(policy).__qualname__}"

    def __call__(self, request: Request, *state: Any) -> "UsersKey":
        """The request's key."""
        try:
            value = self._key(request, *state)
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self.name}: key of request {request.index}: {described(error)}") from error
        key = UsersKey(value, request.index, self.name)
        if _not_a_number(value):
            raise UsageError(f"{self.name}: key of request {request.index}: {value!r} has no order; return numbers")
        key.__lt__(key)
        return key


class UsersKey:
    """A key that says whose it is when it can't be compared."""

    __slots__ = ("index", "name", "value")

    def __init__(self, value: Any, index: int, name: str) -> None:
        self.value, self.index, self.name = value, index, name

    def __lt__(self, other: "UsersKey") -> bool:
        try:
            return bool(self.value < other.value)
        except Exception as error:
            raise self._incomparable(other, error) from error

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, UsersKey) and bool(self.value == other.value)
        except Exception as error:
            raise self._incomparable(other, error) from error

    __hash__ = None  # type: ignore[assignment]

    def _incomparable(self, other: Any, error: Exception) -> UsageError:
        both = f"{self.index} and {other.index}" if self is not other else str(self.index)
        keys = f"{self.value!r} and {other.value!r}" if self is not other else repr(self.value)
        hint = "return keys of one type that can be sorted, such as numbers or tuples of numbers"
        return UsageError(f"{self.name}: key of request {both}: {keys} can't be compared ({described(error)}); {hint}")


def described(error: BaseException) -> str:
    """The type of a user's error and what it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _not_a_number(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_not_a_number(part) for part in value)
    return isinstance(value, float) and math.isnan(value)
