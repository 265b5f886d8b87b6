"""The events of a stream are the bytes that a JSON encoder would write."""

import json

import pytest

from router.api.generation import Output
from router.api.openai.replies import CompletionKind, Envelope
from router.api.tokens import encoded_word, word


def parsed(data: bytes) -> list[dict[str, object]]:
    """The JSON of every event."""
    assert data.endswith(b"\n\n")
    return [json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n")[:-1]]


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_events_carry_text_index_and_reason(kind: CompletionKind) -> None:
    output = Output(tokens=3, max_tokens=3, reason="length", key=11)
    envelope = Envelope(kind, '100%d of "it"', streamed=True)
    events = envelope.events(12, output)
    found = parsed(events.between(0, 3))
    assert [e["model"] for e in found] == ['100%d of "it"'] * 3
    choices = [e["choices"][0] for e in found]
    assert [c["index"] for c in choices] == [12] * 3
    assert [c["finish_reason"] for c in choices] == [None, None, "length"]
    if kind == "chat":
        assert [c["delta"].get("role") for c in choices] == ["assistant", None, None]
        assert [c["delta"]["content"] for c in choices] == [output.piece(i) for i in range(3)]
    else:
        assert "".join(c["text"] for c in choices) == output.text(0, 3)
    assert events.event(1) == events.between(1, 2)


def test_the_text_of_an_echo_is_escaped() -> None:
    output = Output(tokens=2, max_tokens=2, reason="stop", key=0, words=('say "hi"', " né\n"))
    texts = [
        e["choices"][0]["text"]
        for e in parsed(Envelope("completion", "m", streamed=True).events(0, output).between(0, 2))
    ]
    assert texts == ['say "hi"', " né\n"]


@pytest.mark.parametrize("position", [0, 1, 77])
def test_an_encoded_word_is_the_word(position: int) -> None:
    assert json.loads(encoded_word(5, position)) == word(5, position)
