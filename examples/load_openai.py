"""A load generator to copy: Poisson arrivals with the official `openai` client.

    python examples/load_openai.py --url http://localhost:8000 --rate 4 --requests 20

Arrivals do not wait for replies (open loop), and latency counts from the intended start, not from when this program got
round to it: a server that stalls can't make its own load lighter. Rates and latencies are wall time; a Stageline server
adds the emulated ones to `usage`. `stageline load` does the same with more care.
"""

import argparse
import asyncio
import random
import statistics
import time

from openai import AsyncOpenAI


async def call(client: AsyncOpenAI, model: str, intended: float, tokens: int) -> tuple[float, float, object]:
    """One streamed chat; (TTFT, E2E, usage)."""
    first = 0.0
    usage: object = None
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Tell me a story about a pipeline. " * 20}],
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, "min_tokens": tokens},
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content and not first:
            first = time.perf_counter()
        usage = chunk.usage or usage
    return first - intended, time.perf_counter() - intended, usage


async def main() -> None:
    """Sends them all and prints percentiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--rate", type=float, default=4, help="requests per second")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32)
    flags = parser.parse_args()
    gaps = random.Random(0)
    async with AsyncOpenAI(base_url=f"{flags.url}/v1", api_key="none", max_retries=0) as client:
        model = (await client.models.list()).data[0].id
        due, calls = time.perf_counter(), []
        for _ in range(flags.requests):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            calls.append(asyncio.create_task(call(client, model, due, flags.tokens)))
            due += gaps.expovariate(flags.rate)
        done = await asyncio.gather(*calls, return_exceptions=True)
    good = [entry for entry in done if not isinstance(entry, BaseException)]
    print(f"{len(good)} of {len(done)} finished")
    for name, values in (("TTFT", [g[0] for g in good]), ("E2E", [g[1] for g in good])):
        if values:
            print(f"{name}: median {statistics.median(values):.3f} s, largest {max(values):.3f} s")
    if good:
        print(f"last usage: {good[-1][2]}")


if __name__ == "__main__":
    asyncio.run(main())
