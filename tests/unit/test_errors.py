"""The tree of errors: the drawing is the truth."""

import re

import grpc
import pytest

from stageline import errors
from stageline.errors import BadInput, LawBroken, StagelineError, UsageError

LEAVES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, StagelineError) and value is not StagelineError
]


def test_the_drawing_names_every_class_with_its_exit_code() -> None:
    drawn = dict(re.findall(r"[|`]- (\w+) .* exit (\d)", errors.__doc__ or ""))
    assert {name: int(code) for name, code in drawn.items()} == {leaf.__name__: leaf.exit_code for leaf in LEAVES}
    nested = set(re.findall(r"\|  [|`]- (\w+)", errors.__doc__ or ""))
    assert nested == {leaf.__name__ for leaf in LEAVES if leaf.__base__ is UsageError}


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_every_error_knows_its_grpc_code(leaf: type[StagelineError]) -> None:
    assert leaf.grpc_code in grpc.StatusCode.__members__


def test_only_what_may_pass_by_itself_is_worth_retrying() -> None:
    assert {leaf.__name__ for leaf in LEAVES if leaf.retry} == {"Busy", "Unavailable"}
    assert {leaf.http_status for leaf in LEAVES if leaf.retry} == {429, 503}


def test_bad_input_names_place_value_and_hint() -> None:
    error = BadInput("trace.csv:7:2", "abc", "expected an integer", "use --skip-bad-rows to skip it")
    assert str(error) == "trace.csv:7:2: expected an integer (got 'abc'); use --skip-bad-rows to skip it"
    assert str(BadInput("plan.json", None, "no such file")) == "plan.json: no such file"


def test_a_broken_law_is_not_a_users_mistake() -> None:
    assert not issubclass(LawBroken, StagelineError)
