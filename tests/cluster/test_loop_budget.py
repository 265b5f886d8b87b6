"""No request holds the router's event loop: measured in the loop's own CPU time, so a busy host does not matter."""

import asyncio
import contextlib
import gc
import io
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import grpc
import pytest
from grpc import aio

from stageline.testing import uniform_plan
from stageline.v1 import router_pb2
from tests.cluster.live import MODEL, Live, live

MOST_S = 0.25
CONTEXT = 1 << 16
NEVER = "zzzzzzzz"
GENERATE = "/stageline.v1.Router/Generate"
MANY_STOPS = ["q" * 1000 + str(number) for number in range(16)]
EMPTY_PROMPTS = '{"prompt":[' + ",".join(['""'] * 20_000_000) + "]}"  # 58 MB
TREE: dict[str, Any] = {"type": "object", "properties": {name: {"$ref": "#"} for name in "abcdefgh"}}


def roomy_plan() -> object:
    """Of a long context and large KV caches: nothing is refused because it does not fit."""
    return uniform_plan(
        2, service_ns=2_000_000, token_ns=1, latency_ns=1_000, bytes_per_s=10**12, bytes_per_token=1,
        kv_budget_bytes=1 << 40, kv_block_bytes=64, microbatch=128, credits=2, max_context_tokens=CONTEXT, model=MODEL,
    )  # fmt: skip


def chat(**fields: object) -> dict[str, object]:
    """A chat's body."""
    return {"messages": [{"role": "user", "content": "x"}], **fields}


def tool(schema: object) -> dict[str, object]:
    """The fields of a chat that forces a tool of this schema."""
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}], "tool_choice": "required"}


BODIES: dict[str, tuple[str, object]] = {
    "many choices, a stop that never comes": (
        "completions", {"prompt": "x", "n": 128, "max_tokens": 32768, "stop": NEVER},
    ),
    "one long output, many long stops": ("completions", {"prompt": "x", "max_tokens": 32768, "stop": MANY_STOPS}),
    "stops without end": ("completions", {"prompt": "x", "max_tokens": 8000, "stop": "s" * 150_000}),
    "stops by the thousand": ("completions", {"prompt": "x", "max_tokens": 8000, "stop": ["s"] * 100_000}),
    "58 MB of empty prompts": ("completions", EMPTY_PROMPTS),
    "a million empty prompts": ("completions", {"prompt": [""] * 1_000_000}),
    "a million prompts of ids": ("completions", {"prompt": [[1]] * 1_000_000}),
    "a million ids": ("completions", {"prompt": [7] * 1_000_000}),
    "ids without end": ("completions", {"prompt": [10**18] * 60_000, "max_tokens": 1}),
    "a prompt as long as the context": ("completions", {"prompt": "a " * 60_000, "max_tokens": 1, "n": 128}),
    "a prompt beyond the context": ("completions", {"prompt": "word " * 1_500_000}),
    "one endless word": ("completions", {"prompt": "w" * 7_000_000}),
    "characters of four bytes": ("completions", {"prompt": "\U0001f600" * 400_000, "echo": True, "n": 64}),
    "echoes": ("completions", {"prompt": "a " * 30_000, "max_tokens": 1, "n": 128, "echo": True}),
    "prompts and choices": ("completions", {"prompt": ["x"] * 128, "n": 128, "max_tokens": 8000, "stop": NEVER}),
    "ids of stop tokens": ("completions", {"prompt": "x", "max_tokens": 1, "stop_token_ids": [1] * 2_000_000}),
    "a million messages": ("chat/completions", {"messages": [{"role": "u"}] * 400_000}),
    "a million parts": (
        "chat/completions", {"messages": [{"role": "u", "content": [{"type": "text", "text": "a"}] * 200_000}]},
    ),
    "images without end": (
        "chat/completions", {"messages": [{"role": "u", "content": [{"type": "image_url"}] * 300_000}]},
    ),
    "a tree of schemas": ("chat/completions", chat(n=128, **tool(TREE))),
    "lists of lists": (
        "chat/completions", chat(**tool({"type": "array", "minItems": 40, "items": {"type": "array", "minItems": 40}})),
    ),
    "a thousand members": (
        "chat/completions",
        chat(n=128, **tool({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1000)}})),
    ),
    "a long call": ("chat/completions", chat(n=16, max_tokens=30_000, ignore_eos=True, **tool({"type": "string"}))),
    "a schema of a megabyte": ("chat/completions", chat(**tool({"enum": ["e" * 100] * 80_000}))),
    "deep JSON": ("chat/completions", '{"messages":' * 200_000),
    "deep lists": ("completions", '{"prompt":' + "[" * 4_000_000),
    "huge numbers": ("completions", '{"prompt":"x","max_tokens":' + "9" * 4_000_000 + "}"),
    "embeddings": ("embeddings", {"input": ["a b c"] * 128, "dimensions": 16384}),
    "more embeddings": ("embeddings", {"input": [""] * 2_000_000}),
    "words to count": ("../tokenize", {"prompt": "a " * 60_000}),
    "more words to count": ("../tokenize", {"prompt": "a " * 4_000_000}),
    "messages to count": ("../tokenize", {"messages": [{"role": "u"}] * 400_000}),
}  # fmt: skip


@contextlib.asynccontextmanager
async def longest_turn() -> AsyncIterator[list[float]]:
    """The most CPU time that this thread spent between two turns of a task of its loop."""
    longest = [0.0]

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest[0], before = max(longest[0], now - before), now

    task = asyncio.create_task(watch())
    try:
        yield longest
    finally:
        task.cancel()


@contextlib.asynccontextmanager
async def held() -> AsyncIterator[Live]:
    """A cluster in which no turn of the event loop may take MOST_S of its own time.

    What other tests have left in this process is no part of a server: the collector does not walk through it.
    """
    scheduling = json.dumps({"prefix_cache": True, "kv": "grow"})
    gc.collect()
    gc.freeze()
    try:
        async with live(roomy_plan(), scheduling=scheduling, image_tokens=85) as cluster:
            async with longest_turn() as longest:
                yield cluster
            assert longest[0] < MOST_S, f"the loop was held for {longest[0]:.3f} s"
    finally:
        gc.unfreeze()


async def answered(cluster: Live, path: str, data: bytes, *, wait_s: float = 60.0) -> int:
    """The status of a request; 0 when the connection ended instead, or after `wait_s`, when the client leaves."""
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession() as session:
        try:
            async with (
                asyncio.timeout(wait_s),
                session.post(f"{cluster.url}/v1/{path}", data=io.BytesIO(data), headers=headers) as reply,
            ):
                await reply.read()
                return reply.status
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return 0


@pytest.mark.parametrize("name", BODIES)
async def test_no_request_holds_the_loop(name: str) -> None:
    path, body = BODIES[name]
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    async with held() as cluster:
        status = await answered(cluster, path, data, wait_s=2.0)
        assert status in (0, 200, 400, 413)
        assert await answered(cluster, "completions", b'{"prompt":"x","max_tokens":1}') == 200


STRANGE: tuple[Callable[[random.Random], object], ...] = (
    lambda r: r.choice([None, True, -1, 0, 1.5, 10 ** r.randrange(400), "", "é\ud800", {}, []]),
    lambda r: "".join(chr(r.randrange(1, 0x3000)) for _ in range(r.randrange(200))),
    lambda r: " a" * 10 ** r.randrange(6),
    lambda r: [r.choice(["", 1, [], {}, None])] * 10 ** r.randrange(6),
    lambda r: [[r.randrange(1 << 20)] * r.randrange(99)] * r.randrange(999),
    lambda r: {"type": r.choice(["array", "object", "string"]), "minItems": r.randrange(99), "items": {"$ref": "#"}},
    lambda r: 1 << r.randrange(70),
)
FIELDS = (
    "prompt", "messages", "n", "stop", "max_tokens", "min_tokens", "seed", "echo", "tools", "tool_choice", "input",
    "response_format", "stream", "stream_options", "dimensions", "ignore_eos", "priority", "best_of", "suffix",
)  # fmt: skip
SOUND: tuple[dict[str, object], ...] = (
    {"prompt": "x"}, chat(), chat(**tool(TREE)), {"input": "x"}, {"prompt": ["a"] * 64, "n": 2, "stop": NEVER},
)  # fmt: skip
PATHS = ("completions", "chat/completions", "embeddings", "../tokenize")


async def test_no_body_of_the_fuzzer_holds_the_loop() -> None:
    async with held() as cluster:
        for seed in range(120):
            r = random.Random(seed)
            body = r.choice(SOUND) | {r.choice(FIELDS): r.choice(STRANGE)(r) for _ in range(r.randrange(4))}
            status = await answered(cluster, r.choice(PATHS), json.dumps(body).encode(), wait_s=2.0)
            assert status in (0, 200, 400, 413, 429), f"seed {seed}: {status}"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "x", "max_tokens": 32768, "stop": [NEVER] * 100_000},
        {"prompt": "x", "max_tokens": 32768, "stop": MANY_STOPS},
        {"prompt": "a " * 4_000_000},
        {"prompt": "a " * 60_000, "max_tokens": 1},
        {"prompt_ids": [1 << 31] * 1_000_000},
    ],
)
async def test_no_request_over_grpc_holds_the_loop(fields: dict[str, Any]) -> None:
    message = router_pb2.GenerateRequest(**fields).SerializeToString()  # here: client and router share a thread
    async with held() as cluster, aio.insecure_channel(cluster.grpc) as channel:
        call = channel.unary_stream(GENERATE)(message, timeout=2)
        with contextlib.suppress(aio.AioRpcError):
            while await call.read() is not aio.EOF:
                pass
        good = (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED)
        assert await call.code() in good
