"""No request holds the router's event loop: measured in the loop's own CPU time, so a busy host does not matter."""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.cluster.live import live, live_plan

MOST_S = 0.25
MANY_STOPS = ["q" * 1000 + str(number) for number in range(16)]
BODIES = {
    "many choices, a stop that never comes": {"prompt": "x", "n": 128, "max_tokens": 8000, "stop": "zzzzzzzz"},
    "one long output, many long stops": {"prompt": "x", "max_tokens": 8000, "stop": MANY_STOPS},
    "stops without end": {"prompt": "x", "max_tokens": 8000, "stop": "s" * 150_000},
    "a million empty prompts": {"prompt": [""] * 1_000_000, "max_tokens": 1},
    "a prompt far beyond the context": {"prompt": "word " * 2_000_000, "max_tokens": 1},
    "prompts and choices": {"prompt": ["x"] * 128, "n": 128, "max_tokens": 8000, "stop": "zzzzzzzz"},
}


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


@pytest.mark.parametrize("name", BODIES)
async def test_no_request_holds_the_loop(name: str) -> None:
    data = json.dumps(BODIES[name] | {"model": "llama-3.1-8b"}).encode()
    headers = {"Content-Type": "application/json"}
    async with live(live_plan()) as cluster, aiohttp.ClientSession() as session, longest_turn() as longest:
        async with session.post(f"{cluster.url}/v1/completions", data=io.BytesIO(data), headers=headers) as reply:
            assert reply.status in (200, 400, 413)
        assert longest[0] < MOST_S
