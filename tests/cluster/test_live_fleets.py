"""Live fleets: one endpoint for the models of all pools, in wall time."""

import asyncio
import json
from pathlib import Path

import msgspec
import openai
import pytest

from stageline.engine.fleet import Fleet, Pool
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.runtime.cluster_view import cluster_samples, view_between
from stageline.runtime.deployment import Deployment
from stageline.wire.router_client import RouterClient
from tests.cluster.live import MODEL, ask, handing_over, live, live_plan, recorded_digest, replayed_digest

OTHER = "kimi-k3"


def named(plan: Plan, model: str, context_tokens: int) -> Plan:
    return msgspec.structs.replace(plan, model=model, max_context_tokens=context_tokens)


TWO_MODELS = Fleet(
    pools=(
        Pool(name="llama", plan=named(live_plan(2), MODEL, 2048)),
        Pool(name="kimi", plan=named(live_plan(3, route=(0, 1, 0, 2)), OTHER, 4096), scheduling=Scheduling(kv="grow")),
    )
)
ONE_MODEL = Fleet(
    pools=(
        Pool(name="plain", plan=live_plan(2, replicas=2), scheduling=Scheduling(prefix_cache=True)),
        Pool(name="again", plan=live_plan(3, route=(0, 1, 0, 2, 1)), scheduling=Scheduling(kv="grow", credits=3)),
    ),
    balance="least-loaded",
)


async def test_the_model_of_a_request_chooses_its_pool(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    async with live(TWO_MODELS, record=str(path)) as cluster, cluster.client() as client:
        cards = {card.id: card.max_model_len async for card in await client.models.list()}
        replies = [
            await client.completions.create(model=model, prompt="x", max_tokens=3)
            for model in (MODEL, OTHER, f"moonshotai/{OTHER.upper()}-Instruct")
        ]
        with pytest.raises(openai.NotFoundError, match="The model `gpt-2` does not exist"):
            await client.completions.create(model="gpt-2", prompt="x")
        with pytest.raises(openai.BadRequestError, match=f"name one of {MODEL}, {OTHER}"):
            await client.completions.create(model="", prompt="x")
        with pytest.raises(openai.BadRequestError, match="maximum context length is 2048 tokens"):
            await client.completions.create(model=MODEL, prompt=[1] * 2500, max_tokens=1)
        await client.completions.create(model=OTHER, prompt=[1] * 2500, max_tokens=1)
        await cluster.quiet()
        ttfts = "stageline_time_to_first_token_seconds_count"
        counts = [
            await cluster.metric(f'{ttfts}{{pool="{pool}",replica="{replica}"}}')
            for replica, pool in enumerate(["llama", "kimi"])
        ]
    assert cards == {MODEL: 2048, OTHER: 4096}
    assert [reply.model for reply in replies][:2] == [MODEL, OTHER]
    assert counts == [1, 3]
    header, first, *_ = (json.loads(line) for line in path.read_text().splitlines())
    assert (header["fleet_digest"], "plan_digest" in header) == (TWO_MODELS.digest(), False)
    assert first["model"] == MODEL
    assert recorded_digest(path) == replayed_digest(TWO_MODELS, path)


async def test_what_ports_have_sent() -> None:
    """A prompt of one block takes 64 bytes on each of two stages, and 0.2 ms of a port of 640 kB/s."""
    fleet, port = handing_over("source-first"), 'stageline_port_{}_total{{direction="{}",pool="{}",replica="{}"}}'
    async with live(fleet) as cluster, cluster.client() as client, RouterClient(cluster.grpc) as router:
        before = cluster_samples(await router.status(metrics=True), 0.0)
        for _ in range(4):
            await client.completions.create(model=MODEL, prompt=[1] * 5, max_tokens=3)
        await cluster.quiet()
        out = [await cluster.metric(port.format(what, "egress", "prefill", 0)) for what in ("bytes", "busy_seconds")]
        into = [await cluster.metric(port.format("bytes", "ingress", "decode", r)) for r in (1, 2)]
        landed = [
            await cluster.metric(f'stageline_hand_over_seconds_count{{pool="decode",replica="{r}"}}') for r in (1, 2)
        ]
        now = cluster_samples(await router.status(metrics=True), 1.0)
    assert out == pytest.approx([4 * 128, 4 * 0.0002])
    assert (sum(into), sum(landed)) == (4 * 128, 4)
    view = view_between("here", Deployment(fleet), now, before)
    passed_s = now.router.total("stageline_emulated_seconds")
    assert [(p.name, p.running, p.waiting, p.moving_bytes, p.ports) for p in view.pools] == [
        ("prefill", 0, 0, 0, 1),
        ("decode", 0, 0, 0, 2),
    ]
    assert [p.port_ratio for p in view.pools] == pytest.approx([0.0008 / passed_s, 0.0008 / passed_s / 2])


@pytest.mark.parametrize(
    ("fleet", "models", "settings"),
    [
        (TWO_MODELS, (MODEL, OTHER), {"seed": 7}),
        (ONE_MODEL, (MODEL, ""), {"dilation": "5"}),
        (handing_over("source-first"), (MODEL,), {"payload": "full"}),
        (handing_over("destination-first", streamed=True), (MODEL,), {"dilation": "5", "payload": "capped"}),
    ],
    ids=["two models", "one model", "source-first", "destination-first"],
)
async def test_replay(fleet: Fleet, models: tuple[str, ...], settings: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    async with live(fleet, record=str(path), **settings) as cluster, cluster.client() as client:
        asked = (ask(client, number, models[number % len(models)], most_tokens=900) for number in range(30))
        await asyncio.gather(*asked)
        await cluster.emptied()
    assert '"cancel"' in path.read_text()
    assert recorded_digest(path) == replayed_digest(fleet, path)
