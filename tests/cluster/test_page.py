"""GET /: what runs here, for people; and the figures that the page asks for."""

import asyncio
import re

import aiohttp

from router.page import watch
from tests.cluster.live import MODEL, live, live_plan


async def get(session: aiohttp.ClientSession, url: str) -> aiohttp.ClientResponse:
    """A reply that was read."""
    reply = await session.get(url)
    await reply.read()
    return reply


async def test_the_page_says_what_runs_here_and_loads_nothing_from_elsewhere() -> None:
    settings = {"dashboards": "http://grafana:3000/?a=1&b", "api_key": "k", "served_model_name": "mine,<b>"}
    async with live(live_plan(replicas=2), **settings) as cluster, aiohttp.ClientSession() as session:
        reply = await get(session, f"{cluster.url}/")
        text = await reply.text()
        assert (reply.status, reply.content_type) == (200, "text/html")
        links = re.findall(r'(?:href|src)="([^"]*)"', text)
        assert "http://grafana:3000/?a=1&amp;b" in links
        for link in links:
            if "://" not in link:
                assert (await get(session, f"{cluster.url}/{link}")).status in (200, 401), link
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert [link for link in links if "://" in link] == ["http://grafana:3000/?a=1&amp;b"]
    for said in (MODEL, "2 x 3 ", "3 stages", "2 replicas", "mine, &lt;b&gt;", "Authorization: Bearer KEY", "/metrics"):
        assert said in text, said
    assert "%%" not in text


async def test_the_figures_are_those_of_top_taken_once_for_all_who_look() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client, aiohttp.ClientSession() as session:
        await client.completions.create(model=MODEL, prompt="x", max_tokens=20)
        views = await asyncio.gather(*(get(session, f"{cluster.url}/status") for _ in range(20)))
        first = await views[0].json()
        assert len({await view.text() for view in views}) == 1
    assert (first["finished"], first["running"], len(first["stages"])) == (1, 0, 3)
    assert abs(sum(first["stages"][0]["shares"].values()) - 1) < 1e-6
    assert first["mode"] == "live, dilation 1"
    assert watch.FRESH_S < 1
