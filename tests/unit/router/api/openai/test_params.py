"""Bodies of requests become GenerationParams, or errors that name the field."""

import msgspec
import pytest

from router.api.generation import GenerationParams, OutputLengths
from router.api.openai.params import chat_params, completion_params
from router.api.openai.schema import ChatRequest, CompletionRequest
from router.api.tokenizer import SYNTHETIC
from router.live.names import ModelNames
from stageline.errors import BadInput


def completion(**fields: object) -> CompletionRequest:
    """A decoded body."""
    return msgspec.json.decode(msgspec.json.encode(fields), type=CompletionRequest)


@pytest.mark.parametrize(
    ("prompt", "counts"),
    [("a b", [2]), (["a", "b c"], [1, 2]), ([1, 2, 3], [3]), ([[1], [2, 3]], [1, 2])],
)
def test_prompts_in_all_shapes(prompt: object, counts: list[int]) -> None:
    assert [w.prompt_tokens for w in completion_params(completion(prompt=prompt), 0)] == counts


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "min_tokens": -1}, "min_tokens"),
        ({"prompt": "x", "stop": ["a"] * 17}, "stop"),
        ({"prompt": "x", "logprobs": 2}, "logprobs"),
        ({"prompt": "x", "logprobs": 0}, "logprobs"),
        ({"prompt": "x", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "seed": 1 << 70}, "seed"),
    ],
)
def test_an_unsupported_value_is_refused_with_its_field(fields: dict[str, object], place: str) -> None:
    with pytest.raises((BadInput, msgspec.ValidationError), match=place):
        completion_params(completion(**fields), 0)


def test_sampling_settings_are_ignored_and_tools_are_part_of_the_prompt() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "x"}], "temperature": 2,
            "tools": [{"type": "function", "function": {"name": "f"}}], "top_p": None, "max_completion_tokens": 5,
            "max_tokens": 9}  # fmt: skip
    (params,) = chat_params(msgspec.json.decode(msgspec.json.encode(body), type=ChatRequest), 0)
    tools = b'tools: [{"type":"function","function":{"name":"f"}}]\n'  # as long in the prompt as their JSON is
    assert (params.max_tokens, params.prompt, params.shape) == (5, tools + b"user: hi", None)


def test_names() -> None:
    names = ModelNames("llama-3.1-8b", "")
    assert names.listed == ("llama-3.1-8b",)
    assert all(
        map(names.knows, ["", "llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"])
    )
    assert not any(map(names.knows, ["llama-3.1-80b", "gpt-4", "meta-llama/Llama-3.1-70B"]))


def test_the_next_turn_begins_with_the_identities_of_this_ones_answer() -> None:
    """The live router names the blocks of an answer as the prompt of the next turn will."""
    chat = [{"role": "system", "content": "be brief and kind"}, {"role": "user", "content": "what is there to see"}]

    def params(messages: list[dict[str, str]]) -> GenerationParams:
        return chat_params(msgspec.convert({"messages": messages}, ChatRequest), 0)[0]

    this = params(chat)
    answer = OutputLengths("constant:40", seed=3).output(this, 0).text(0, 40)
    after = params([*chat, {"role": "assistant", "content": answer}, {"role": "user", "content": "and now"}])
    begins = this.next_ids(answer, SYNTHETIC)
    assert after.token_ids(SYNTHETIC)[: len(begins)] == begins
    assert len(begins) > this.prompt_tokens + 40


def test_token_ids_go_on_with_the_ids_of_the_answer() -> None:
    (this,) = completion_params(completion(prompt=[5, 6, 7]), 0)
    assert this.next_ids("a b", SYNTHETIC) == (5, 6, 7, *SYNTHETIC.ids("a b"))
