"""The example of docs/protocol.md, frame by frame."""

import asyncio
import re
from pathlib import Path

import msgspec

from stageline.engine.types import NEVER, Request
from stageline.plan.schema import LinkPlan
from stageline.sync.frames import Frame
from stageline.wire.outlink import OutLink
from tests.cluster.plans import small_plan
from tests.cluster.servers import cluster

LINK = LinkPlan(latency_ns=500, bytes_per_s=10**9, bytes_per_token=64)
FRAMES = [  # link, promise, arrival, end of the visit before, what its chunk has cost until then
    (0, 6332, 1140, 0, 0),
    (1, 8284, 3380, 2240, 1100),
    (2, 9848, 5620, 4480, 2200),
    (3, 11348, 7284, 6720, 3300),
]


async def test_the_example_is_true(monkeypatch, root: Path):
    sent = []
    push = OutLink.push

    def noted(link: OutLink, frame: Frame) -> None:
        sent.append((link._hello.link, frame))
        push(link, frame)

    monkeypatch.setattr(OutLink, "push", noted)
    plan = msgspec.structs.replace(small_plan(2, route=(0, 1, 0)), links=(LINK,) * 4)
    request = Request(index=0, arrival_ns=0, prompt_tokens=10, output_tokens=1, max_output_tokens=1)
    async with asyncio.timeout(30), cluster(plan) as servers:
        _, seen, _ = await servers.run([request])
    heads = [(v, f.promise_ns, f.items[0]) for v, f in sent[:4]]
    assert [(v, p, i.arrival_ns, i.trail.prev_end_ns, i.trail.chunk_wait_ns) for v, p, i in heads] == FRAMES
    assert {i.trail.pace_ns for _, _, i in heads} == {0}
    assert [(v, f.promise_ns, f.last, f.releases) for v, f in sent[4:]] == [(v, NEVER, True, (0,)) for v in range(4)]
    assert seen.tokens == [(0, 7284, None)]
    text = (root / "docs" / "protocol.md").read_text()
    for link, promise_ns, arrival_ns, end_ns, chunk_wait_ns in FRAMES:
        row = next(line for line in text.splitlines() if re.match(rf"\| \S+.* → .*, link {link} ", line))
        assert f"`promise_ns {promise_ns}`" in row
        assert f"arrival_ns {arrival_ns}" in row
        assert not end_ns or f"prev_end_ns {end_ns}, chunk_wait_ns {chunk_wait_ns}" in row
