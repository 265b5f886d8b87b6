"""The states of a request in a fleet: a table that can be printed, and errors that tell the story."""

from pathlib import Path

import pytest

from tests.reference.fleet_laws import PLACES
from tests.reference.states import ENDS, MOVES, IllegalMove, State, Story, table


def test_an_illegal_move_tells_the_story_so_far() -> None:
    story = Story(3)
    story.move("bind", 10, "replica 0")
    story.move("admit", 20, "replica 0")
    with pytest.raises(IllegalMove) as caught:
        story.move("land", 30, "replica 1")
    assert str(caught.value).splitlines() == [
        "request 3 at 30 ns: 'land' in state running",
        "          10 ns  bind      -> waiting    replica 0",
        "          20 ns  admit     -> running    replica 0",
    ]
    assert story.state == State.RUNNING


def test_every_state_can_be_reached_and_left_but_ends() -> None:
    reached = {after for moves in MOVES.values() for after in moves.values()}
    assert reached == set(State) - {State.NEW}
    assert {state for state, moves in MOVES.items() if not moves} == ENDS
    assert set(MOVES) == set(State)
    assert set(PLACES) == set(State) - {State.NEW}


def test_the_rules_print_the_table(root: Path) -> None:
    rules = (root / "docs/rules-fleets.md").read_text()
    assert table() in rules
    assert [state for state in set(State) - ENDS - {State.NEW} if f"| `{state}` | " not in rules] == []
