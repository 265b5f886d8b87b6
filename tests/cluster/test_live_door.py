"""The official client against a real cluster in wall time."""

import asyncio
import json
import ssl
from pathlib import Path

import aiohttp
import openai
import pytest
from tokenizers import Tokenizer

from router.api import tokens
from tests.certificates import Authority
from tests.cluster.live import MODEL, live, live_plan
from tests.tokenizer import trained


async def test_chat_streams_every_token_and_the_usage() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=12,
                stream=True,
                stream_options={"include_usage": True},
            )
        ]
    *body, usage = chunks
    assert [bool(c.choices[0].delta.content) for c in body] == [True] * 12
    assert body[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in body] == [None] * 11 + ["length"]
    assert usage.choices == []
    assert usage.usage.completion_tokens == 12
    assert usage.usage.prompt_tokens_details.cached_tokens == 0
    assert tokens.count("".join(c.choices[0].delta.content for c in body)) == 12
    assert 0 < usage.usage.ttft_s < usage.usage.e2e_s
    assert usage.usage.dilation == 1


async def test_the_same_seed_gives_the_same_text_streamed_or_not() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        texts = []
        for seed in (1, 1, 2):
            reply = await client.completions.create(model=MODEL, prompt="once", max_tokens=6, seed=seed)
            texts.append(reply.choices[0].text)
        parts = await client.completions.create(model=MODEL, prompt="once", max_tokens=6, seed=1, stream=True)
        streamed = "".join([c.choices[0].text async for c in parts])
    assert texts[0] == texts[1] == streamed != texts[2]


async def test_several_choices_and_prompts_keep_their_order() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        reply = await client.completions.create(model=MODEL, prompt=["a", "b c"], n=2, max_tokens=3)
        ids = await client.completions.create(model=MODEL, prompt=[5, 6, 7], max_tokens=2)
    assert [c.index for c in reply.choices] == [0, 1, 2, 3]
    assert len({c.text for c in reply.choices}) == 4
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 12)
    assert ids.usage.prompt_tokens == 3


async def test_a_stop_text_ends_the_output_before_it() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        ask = {"model": MODEL, "prompt": "tell me", "max_tokens": 20}
        whole = (await client.completions.create(**ask)).choices[0].text
        word = whole.split()[4]
        cut = await client.completions.create(**ask, stop=[f" {word}"])
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].text == whole[: whole.index(f" {word}")]
    assert cut.usage.completion_tokens == len(whole[: whole.index(f" {word}")].split()) + 1


async def test_lengths_come_from_header_distribution_and_limits() -> None:
    async with live(live_plan(), output_lengths="constant:9") as cluster, cluster.client() as client:

        async def length(**ask: object) -> tuple[int, str]:
            reply = await client.completions.create(model=MODEL, prompt="x", **ask)
            return reply.usage.completion_tokens, reply.choices[0].finish_reason

        assert await length(max_tokens=None) == (9, "stop")
        assert await length(max_tokens=4) == (4, "length")
        assert await length(max_tokens=30) == (9, "stop")
        assert await length(max_tokens=30, extra_body={"ignore_eos": True}) == (30, "length")
        assert await length(max_tokens=30, extra_body={"min_tokens": 15}) == (15, "stop")
        assert await length(extra_headers={"x-stageline-output-tokens": "7"}) == (7, "length")


async def test_errors_are_those_of_the_real_api() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.completions.create(model="gpt-4", prompt="x")
        with pytest.raises(openai.BadRequestError, match="maximum context length") as too_long:
            await client.completions.create(model=MODEL, prompt="x", max_tokens=9000)
        with pytest.raises(openai.BadRequestError, match="KV cache"):
            await client.completions.create(model=MODEL, prompt=[1] * 4000, max_tokens=4000, n=1)
        with pytest.raises(openai.BadRequestError, match="log probabilities"):
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "x"}], logprobs=True
            )
        async with aiohttp.ClientSession() as session, session.post(f"{cluster.url}/v1/completions", data="{") as reply:
            broken = json.loads(await reply.text())
        unknown = []
        for call in (client.post("/nothing", cast_to=object), client.get("/completions", cast_to=object)):
            with pytest.raises(openai.APIStatusError) as refused:
                await call
            unknown.append((refused.value.status_code, refused.value.type, refused.value.code))
    assert unknown == [(404, "invalid_request_error", None), (405, "invalid_request_error", None)]
    assert too_long.value.code == "context_length_exceeded"
    assert (reply.status, broken["error"]["type"]) == (400, "invalid_request_error")


async def test_a_full_queue_says_when_to_come_back() -> None:
    async with live(live_plan(), queue=2) as cluster, cluster.client() as client:
        with pytest.raises(openai.RateLimitError, match="queue is full") as full:
            await client.completions.create(model=MODEL, prompt="x", n=3)
    assert full.value.response.headers["retry-after"] == "1"


async def test_hugging_face_ids_and_served_names_mean_the_model() -> None:
    async with live(live_plan(), served_model_name="mine,other") as cluster, cluster.client() as client:
        assert [m.id async for m in client.models.list()] == ["mine", "other"]
        for name in ("mine", "meta-llama/Llama-3.1-8B-Instruct"):
            reply = await client.completions.create(model=name, prompt="x", max_tokens=1)
            assert reply.model == name


async def test_a_client_that_leaves_frees_its_request() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        parts = await client.completions.create(model=MODEL, prompt="x", max_tokens=4000, stream=True)
        async for _ in parts:
            break
        await parts.close()
        await cluster.quiet()
        reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=2)
    assert reply.usage.completion_tokens == 2


async def test_no_token_comes_before_it_is_due() -> None:
    loop = asyncio.get_running_loop()
    async with live(live_plan(), dilation="3") as cluster, cluster.client() as client:
        began = loop.time()
        parts = await client.completions.create(
            model=MODEL, prompt="x", max_tokens=10, stream=True, stream_options={"include_usage": True}
        )
        chunks = [(loop.time() - began, c) async for c in parts]
    usage = chunks[-1][1].usage
    assert chunks[0][0] >= usage.ttft_s * 3
    assert chunks[9][0] >= usage.e2e_s * 3


async def test_a_key_is_asked_for_where_one_is_set() -> None:
    async with live(live_plan(), api_key="secret") as cluster, cluster.client() as client:
        with pytest.raises(openai.AuthenticationError, match="API key"):
            await client.completions.create(model=MODEL, prompt="x", max_tokens=1)
        reply = await client.with_options(api_key="secret").completions.create(model=MODEL, prompt="x", max_tokens=1)
    assert reply.usage.completion_tokens == 1


async def test_the_door_speaks_tls(tmp_path: Path) -> None:
    own = Authority(tmp_path).files()
    trust = ssl.create_default_context(cafile=own.ca)
    async with live(live_plan(), tls_cert=own.cert, tls_key=own.key) as cluster, aiohttp.ClientSession() as session:
        body = {"prompt": "x", "max_tokens": 6, "stream": True}
        async with session.post(f"{cluster.url}/v1/completions", json=body, ssl=trust) as reply:
            events = [line async for line in reply.content if line.startswith(b"data")]
    assert len(events) == 7
    assert events[-1] == b"data: [DONE]\n"


async def test_a_tokenizer_file_counts_prompts_and_spells_outputs(tmp_path: Path) -> None:
    path = trained(tmp_path / "tokenizer.json")
    library = Tokenizer.from_file(str(path))
    prompt = "Something that it has never seen"
    want = library.encode(prompt).ids
    async with live(live_plan(), tokenizer=str(path)) as cluster, cluster.client() as client:
        reply = await client.completions.create(model=MODEL, prompt=prompt, max_tokens=25)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{cluster.url}/tokenize", json={"prompt": prompt}) as answer,
        ):
            counted = json.loads(await answer.text())
    assert (counted["tokens"], counted["count"]) == (want, len(want))
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(want), 25)
    assert len(library.encode(reply.choices[0].text).ids) == 25
