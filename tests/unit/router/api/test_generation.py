"""Lengths, reasons and texts of outputs, decided at arrival."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.api import tokens
from router.api.generation import DEFAULT_TOKENS, GenerationParams, OutputLengths, checked_stops
from stageline.errors import BadInput


def params(**fields: object) -> GenerationParams:
    """The params of a request with a short prompt."""
    return GenerationParams(prompt=b"hello", prompt_tokens=1, **fields)


@pytest.mark.parametrize(
    ("rule", "fields", "tokens_", "reason"),
    [
        ("max", {}, DEFAULT_TOKENS, "stop"),
        ("max", {"max_tokens": 7}, 7, "length"),
        ("max", {"exact_tokens": 5}, 5, "length"),
        ("constant:9", {}, 9, "stop"),
        ("constant:9", {"max_tokens": 4}, 4, "length"),
        ("constant:9", {"max_tokens": 20}, 9, "stop"),
        ("constant:9", {"max_tokens": 20, "ignore_eos": True}, 20, "length"),
        ("constant:9", {"max_tokens": 20, "min_tokens": 12}, 12, "stop"),
        ("echo", {"prompt_text": "a b c"}, 3, "stop"),
        ("echo", {"prompt_text": "a b c", "max_tokens": 2}, 2, "length"),
    ],
)
def test_lengths(rule: str, fields: dict[str, object], tokens_: int, reason: str) -> None:
    output = OutputLengths(rule, seed=0).output(params(**fields), 0)
    assert (output.tokens, output.reason) == (tokens_, reason)
    assert output.max_tokens == max(tokens_, int(str(fields.get("max_tokens", 0))))


def test_echo_returns_the_prompt() -> None:
    output = OutputLengths("echo", seed=0).output(params(prompt_text="one two three"), 0)
    assert output.text(0, output.tokens) == "one two three"


def test_contradictions_are_refused() -> None:
    with pytest.raises(BadInput, match="min_tokens"):
        OutputLengths("max", seed=0).output(params(max_tokens=3, min_tokens=4), 0)
    with pytest.raises(BadInput, match="--output-lengths"):
        OutputLengths("often", seed=0)


@given(st.integers(0, 5), st.integers(1, 60), st.integers(0, 40), st.integers(0, 30))
def test_a_stop_text_ends_the_output_before_its_first_occurrence(seed: int, most: int, at: int, least: int) -> None:
    lengths = OutputLengths("max", seed=0)
    whole = lengths.output(params(max_tokens=most, seed=seed), 0)
    text = whole.text(0, most)
    stop = text[at % len(text) :][:5]
    least = min(least, most)
    cut = lengths.output(params(max_tokens=most, seed=seed, stop=(stop,), min_tokens=least), 0)
    said = cut.text(0, cut.tokens)
    assert text.startswith(said)
    assert cut.tokens >= min(least, most)
    if cut.reason == "stop":
        assert text[len(said) :].startswith(stop)
    else:
        assert cut.tokens == most


@given(st.integers(1, 200), st.integers(-9, 9), st.integers(0, 3))
def test_output_of_n_tokens_counts_as_n_tokens(count: int, seed: int, choice: int) -> None:
    output = OutputLengths("max", seed=0).output(params(max_tokens=count, seed=seed), choice)
    assert tokens.count(output.text(0, count)) == count
    assert "".join(output.piece(i) for i in range(count)) == output.text(0, count)


@given(st.text(max_size=200))
def test_pieces_are_the_text(text: str) -> None:
    assert "".join(tokens.pieces(text)) == text
    assert tokens.count(text) == len(tokens.pieces(text))


def test_equal_tokens_make_equal_blocks() -> None:
    one, other = tokens.block_hashes(range(10), 4), tokens.block_hashes([0, 1, 2, 3, 9, 9, 9, 9], 4)
    assert (len(one), len(other)) == (2, 2)
    assert one[0] == other[0] != other[1]


def test_the_search_for_a_stop_text_is_bounded() -> None:
    most = 2**31 - 1
    asked = params(max_tokens=most, stop=("no such text",))
    assert OutputLengths("max", seed=0).output(asked, 0).tokens == most


@given(seed=st.integers(0, 50), stop=st.text("abcdefgh ", min_size=1, max_size=3), least=st.integers(0, 700))
def test_the_search_by_blocks_finds_what_a_search_by_tokens_finds(seed: int, stop: str, least: int) -> None:
    lengths, fields = OutputLengths("max", 0), {"max_tokens": 700, "min_tokens": least, "seed": seed}
    whole, stopped = (lengths.output(params(**fields, **more), 0) for more in ({}, {"stop": (stop,)}))
    text = ""
    for position in range(700):
        before = len(text)
        text += whole.piece(position)
        if position + 1 >= least and text.find(stop, max(0, before - len(stop) + 1)) >= 0:
            assert (stopped.tokens, stopped.reason) == (position + 1, "stop")
            assert stopped.text(0, position + 1) == text[: text.find(stop, max(0, before - len(stop) + 1))]
            return
    assert stopped == whole


@pytest.mark.parametrize("stops", [["x"] * 17, ["x" * 1025]])
def test_stop_texts_are_bounded(stops: list[str]) -> None:
    with pytest.raises(BadInput, match="stop"):
        checked_stops(stops)
