"""A live session and its replay give the same digest, whatever the clients did and however the host kept up."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from stageline.plan.schema import KvWindow, Plan
from tests.cluster.live import MODEL, ask, live, live_plan, recorded_digest, replayed_digest

DRAFTS = '"speculate": 3, "acceptance_ppm": 700000, "draft_ns": 20000'


@pytest.mark.parametrize(
    ("plan", "settings"),
    [
        (live_plan(4), {}),
        (live_plan(2, replicas=2), {"scheduling": '{"balance": "least-loaded", "kv": "grow"}'}),
        (live_plan(route=(0, 1, 0, 2, 1)), {"dilation": "5", "seed": 7}),
        (live_plan(3), {"scheduling": f'{{"kv": "grow", {DRAFTS}}}', "seed": 7}),
        (live_plan(3), {"scheduling": '{"front_end_ns": 8000000}'}),
        (live_plan(3, base_ns=20_000), {"dilation": "0.05"}),
    ],
    ids=["chain", "replicas", "revisits", "speculation", "front end", "a host too slow"],
)
async def test_replay(plan: Plan, settings: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    async with live(plan, record=str(path), **settings) as cluster, cluster.client() as client:
        await asyncio.gather(*(ask(client, number) for number in range(40)))
        await cluster.quiet()
        slipped = await cluster.metric("stageline_clock_slip_seconds_total")
    assert '"cancel"' in path.read_text()
    assert recorded_digest(path) == replayed_digest(plan, path)
    too_slow = settings.get("dilation") == "0.05"
    assert slipped > 0 or not too_slow


def windowed(plan: Plan) -> Plan:
    """The same with sliding windows of two blocks in every stage."""
    windows = (KvWindow(most_blocks=2, block_bytes=1),)
    stages = tuple(msgspec.structs.replace(stage, kv_windows=windows) for stage in plan.stages)
    return msgspec.structs.replace(plan, stages=stages)


@pytest.mark.parametrize("plan", [live_plan(3), windowed(live_plan(3))], ids=["whole", "windows"])
async def test_a_session_with_a_prefix_cache(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    prompt = " ".join(f"w{i}" for i in range(200))
    async with live(plan, record=str(path), scheduling='{"prefix_cache": true}') as cluster, cluster.client() as client:
        times, cached = [], []
        for _ in range(3):
            reply = await client.completions.create(model=MODEL, prompt=prompt, max_tokens=4)
            times.append(reply.usage.ttft_s)
            cached.append(reply.usage.prompt_tokens_details.cached_tokens)
        await cluster.quiet()
    assert times[1] < times[0]
    assert cached[0] == 0 < cached[1] == cached[2] < 200
    assert recorded_digest(path) == replayed_digest(plan, path)


async def test_tokens_of_one_step_come_together_and_as_chunks_of_their_own(tmp_path: Path) -> None:
    """With every draft right 13 tokens are the prompt's one and three steps of four; a client sees 13 chunks."""
    path, plan = tmp_path / "session.jsonl", live_plan(3)
    settings = '{"speculate": 3, "acceptance_ppm": 1000000}'
    async with live(plan, record=str(path), scheduling=settings) as cluster, cluster.client() as client:
        parts = await client.completions.create(
            model=MODEL, prompt="x", max_tokens=13, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in parts]
        await cluster.quiet()
        drafted = await cluster.metric(_metric("num_draft_tokens"))
        accepted = await cluster.metric(_metric("num_accepted_tokens"))
        steps = await cluster.metric(_metric("num_drafts"))
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].text]) == 13
    usage = chunks[-1].usage
    assert usage.completion_tokens == 13
    assert (steps, drafted, accepted) == (3, 9, 9)
    lone_ns = 3 * (400_000 + 500) + 4 * 20_000  # one step, a little more for its drafts
    assert 3 * lone_ns < (usage.e2e_s - usage.ttft_s) * 1e9 < 3.1 * lone_ns
    assert recorded_digest(path) == replayed_digest(plan, path)


def _metric(name: str) -> str:
    return f'vllm:spec_decode_{name}_total{{engine="0",model_name="{MODEL}"}}'


async def test_a_router_that_stops_lets_its_clients_finish(tmp_path: Path) -> None:
    path, plan = tmp_path / "session.jsonl", live_plan(3)
    async with live(plan, record=str(path)) as cluster:
        client = cluster.client()
        ask = {"model": MODEL, "prompt": "x", "stream": True}
        gone = await client.completions.create(max_tokens=900, **ask)
        await anext(gone)
        stays = await client.completions.create(max_tokens=300, **ask)
        await anext(stays)
        await gone.close()

        async def rest() -> int:
            return sum([1 async for _ in stays])

        reading = asyncio.create_task(rest())
    assert await reading == 299
    await client.close()
    assert recorded_digest(path) == replayed_digest(plan, path)
