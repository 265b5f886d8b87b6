"""Tools, structured outputs, embeddings, images and limits, as the official client sees them."""

import asyncio
import base64
import json
from array import array
from pathlib import Path

import aiohttp
import jsonschema
import openai
import pytest

from router.api import tokens
from stageline.v1 import router_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from tests.cluster.live import MODEL, live, live_plan

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "now"}}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array"}},
    "required": ["name", "age", "tags"],
}
SAID = [{"role": "user", "content": "hello"}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}


def counted(name: str, arguments: str) -> int:
    """The tokens of a call, by the rule of docs/live.md."""
    return tokens.count(f"{name} {arguments}")


async def test_a_forced_tool_is_called_with_arguments_that_fit() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        ask = {"model": MODEL, "messages": SAID, "tools": [CLOCK, WEATHER]}
        named = {"type": "function", "function": {"name": "get_weather"}}
        reply = await client.chat.completions.create(**ask, tool_choice=named)
        again = await client.chat.completions.create(**ask, tool_choice=named)
        any_of_them = await client.chat.completions.create(**ask, tool_choice="required", n=8)
        text = await client.chat.completions.create(**ask, max_tokens=3)
    (call,) = reply.choices[0].message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])
    assert (call.function.name, reply.choices[0].message.content) == ("get_weather", None)
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.usage.completion_tokens == counted("get_weather", call.function.arguments)
    assert again.choices[0].message.tool_calls == [call]
    assert {choice.message.tool_calls[0].function.name for choice in any_of_them.choices} == {"get_weather", "now"}
    assert (text.choices[0].message.tool_calls, text.choices[0].finish_reason) == (None, "length")
    assert text.usage.prompt_tokens > tokens.count("user: hello") + 30  # tools are part of the prompt


async def test_a_streamed_call_is_the_same_token_by_token() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        ask = {"model": MODEL, "messages": SAID, "tools": [WEATHER], "tool_choice": "required"}
        whole = await client.chat.completions.create(**ask)
        stream = await client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
        *chunks, usage = [chunk async for chunk in stream]
    call = whole.choices[0].message.tool_calls[0]
    deltas = [chunk.choices[0].delta.tool_calls[0] for chunk in chunks]
    assert (deltas[0].id, deltas[0].function.name) == (call.id, "get_weather")
    assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments
    assert len(deltas) == usage.usage.completion_tokens == whole.usage.completion_tokens
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]


async def test_a_call_gets_the_length_that_is_asked_for() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        ask = {"model": MODEL, "messages": SAID, "tools": [WEATHER], "tool_choice": "required"}
        long = await client.chat.completions.create(**ask, extra_headers={"x-stageline-output-tokens": "60"})
        forced = await client.chat.completions.create(**ask, max_tokens=50, extra_body={"ignore_eos": True})
        cut = await client.chat.completions.create(**ask, max_tokens=5)
    for reply, length in ((long, 60), (forced, 50)):
        arguments = reply.choices[0].message.tool_calls[0].function.arguments
        jsonschema.validate(json.loads(arguments), WEATHER["function"]["parameters"])
        assert reply.usage.completion_tokens == length == counted("get_weather", arguments)
    assert (cut.usage.completion_tokens, cut.choices[0].finish_reason) == (5, "length")


async def test_json_of_the_schema_comes_back() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        ask = {"model": MODEL, "messages": SAID}
        replies = [await client.chat.completions.create(**ask, response_format=FORMAT, seed=s) for s in (1, 1, 2)]
        stream = await client.chat.completions.create(**ask, response_format=FORMAT, seed=1, stream=True)
        streamed = "".join([chunk.choices[0].delta.content async for chunk in stream])
        anything = await client.chat.completions.create(**ask, response_format={"type": "json_object"})
    texts = [reply.choices[0].message.content for reply in replies]
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)
    assert texts[0] == texts[1] == streamed != texts[2]
    assert replies[0].usage.completion_tokens == tokens.count(texts[0])
    assert replies[0].choices[0].finish_reason == "stop"
    assert isinstance(json.loads(anything.choices[0].message.content), dict)


async def test_a_conversation_with_tools_goes_on() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        ask = {"model": MODEL, "tools": [WEATHER]}
        first = await client.chat.completions.create(**ask, messages=SAID, tool_choice="required")
        call = first.choices[0].message
        answer = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "sunny"}
        said = [*SAID, call.model_dump(exclude_none=True), answer]
        second = await client.chat.completions.create(**ask, messages=said, max_tokens=4)
    assert second.usage.prompt_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tool_choice": "required"}, "no tools to choose from"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "not the name of one"),
        ({"tools": [CLOCK], "tool_choice": "sometimes"}, "tool_choice: not emulated"),
        ({"tools": [{"type": "web_search"}]}, "only functions"),
        ({"response_format": {"type": "grammar"}}, "response_format.type: not emulated"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"pattern": "a"}}}},
            r"response_format.json_schema.schema.pattern: is not emulated",
        ),
    ],
)
async def test_what_is_not_emulated_is_refused_in_words(fields: dict[str, object], said: str) -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        with pytest.raises(openai.BadRequestError, match=said):
            await client.chat.completions.create(model=MODEL, messages=SAID, **fields)


async def test_embeddings_cost_a_prefill(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    async with live(live_plan(), record=str(path)) as cluster, cluster.client() as client:
        one = await client.embeddings.create(model=MODEL, input="once upon a time", dimensions=64)
        many = await client.embeddings.create(model=MODEL, input=["once upon a time", "another"], dimensions=64)
        ids = await client.embeddings.create(model=MODEL, input=[[5, 6, 7]])
        body = {"input": "once upon a time", "encoding_format": "base64", "dimensions": 64}
        async with aiohttp.ClientSession() as session, session.post(f"{cluster.url}/v1/embeddings", json=body) as reply:
            packed = json.loads(await reply.text())["data"][0]["embedding"]
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            await client.embeddings.create(model=MODEL, input="x", dimensions=0)
    first = one.data[0].embedding
    assert (len(first), sum(x * x for x in first)) == (64, pytest.approx(1))
    assert many.data[0].embedding == first != many.data[1].embedding
    assert list(array("f", base64.b64decode(packed))) == first
    assert (one.usage.prompt_tokens, ids.usage.prompt_tokens, ids.usage.total_tokens) == (4, 3, 3)
    recorded = [row for row in map(json.loads, path.read_text().splitlines()) if "arrival_ns" in row]
    assert [row["prompt_tokens"] for row in recorded] == [4, 4, 2, 3, 4]
    assert {row["output_tokens"] for row in recorded} == {1}


async def test_usage_in_every_chunk() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        options = {"include_usage": True, "continuous_usage_stats": True}
        stream = await client.chat.completions.create(
            model=MODEL, messages=SAID, max_tokens=4, stream=True, stream_options=options
        )
        *chunks, last = [chunk async for chunk in stream]
    assert [chunk.usage.completion_tokens for chunk in chunks] == [1, 2, 3, 4]
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {last.usage.prompt_tokens}
    assert last.usage.completion_tokens == 4


async def test_an_image_counts_as_the_flag_says_or_is_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    chat = [{"role": "user", "content": [{"type": "text", "text": "what is this?"}, part]}]
    text = [{"role": "user", "content": "what is this?"}]
    async with live(live_plan(), image_tokens=85) as cluster, cluster.client() as client:
        counts = [
            (await client.chat.completions.create(model=MODEL, messages=said, max_tokens=1)).usage.prompt_tokens
            for said in (text, chat)
        ]
        with pytest.raises(openai.BadRequestError, match="input_audio"):
            odd = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]
            await client.chat.completions.create(model=MODEL, messages=odd)
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            many = [{"role": "user", "content": [part] * 1000}]
            await client.chat.completions.create(model=MODEL, messages=many)
    assert counts[1] - counts[0] == 85
    async with live(live_plan()) as cluster, cluster.client() as client:
        with pytest.raises(openai.BadRequestError, match="--image-tokens"):
            await client.chat.completions.create(model=MODEL, messages=chat)


async def test_each_key_has_its_own_limit() -> None:
    async with live(live_plan(), api_key="one,two", rate_limit="2/h") as cluster, cluster.client() as client:
        ask = {"model": MODEL, "prompt": "x", "max_tokens": 1}
        one, two = client.with_options(api_key="one"), client.with_options(api_key="two")
        await asyncio.gather(*(one.completions.create(**ask) for _ in range(2)))
        with pytest.raises(openai.RateLimitError, match="2/h calls") as limited:
            await one.completions.create(**ask)
        assert 1700 < int(limited.value.response.headers["retry-after"]) <= 1800
        assert [m.id async for m in one.models.list()] == [MODEL]  # only calls that cost something count
        await two.completions.create(**ask)
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="one,two").completions.create(**ask)


async def test_the_limit_counts_calls_over_grpc() -> None:
    from grpc import StatusCode, aio

    async with live(live_plan(), rate_limit="1/h") as cluster, aio.insecure_channel(cluster.grpc) as channel:
        request = router_pb2.GenerateRequest(prompt="x", max_tokens=1)
        assert [part.tokens async for part in RouterStub(channel).Generate(request)]
        with pytest.raises(aio.AioRpcError, match="1/h calls") as limited:
            await RouterStub(channel).Generate(request).read()
    assert limited.value.code() is StatusCode.RESOURCE_EXHAUSTED
