"""The load client against a real live cluster, over both doors."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.errors import Unavailable
from stageline.load.clock import WallClock
from stageline.load.driver import Turns
from stageline.load.options import Endpoint, LoadOptions, PromptKind
from stageline.load.recorder import LoadRecorder
from stageline.load.run import LoadResult, run_load
from stageline.workload import open_workload
from tests.certificates import Authority
from tests.cluster.live import MODEL, live, live_plan
from tests.cluster.servers import until


async def load(url: str, spec: str, **options: object) -> LoadResult:
    """One run."""
    async with asyncio.timeout(50):
        return await run_load(LoadOptions(url=url, **options), open_workload(spec), WallClock(), lambda progress: None)


def recorded(path: Path) -> list[dict[str, int]]:
    """The arrivals of a recording."""
    return [row for row in map(json.loads, path.read_text().splitlines()) if "arrival_ns" in row]


@pytest.mark.parametrize(
    ("endpoint", "prompts"), [("completions", "ids"), ("completions", "text"), ("chat", "text"), ("grpc", "ids")]
)
async def test_what_arrives_is_what_the_workload_says(endpoint: str, prompts: PromptKind, tmp_path: Path) -> None:
    """Prompt and output lengths to the token, at emulated times, and the emulated latencies of the server."""
    spec = "poisson:rate=200,requests=20,input=uniform(20,60),output=uniform(2,9)"
    path = tmp_path / "session.jsonl"
    async with live(live_plan(), record=str(path), dilation="2") as cluster:
        url = f"grpc://{cluster.grpc}" if endpoint == "grpc" else cluster.url
        api: Endpoint = "chat" if endpoint == "chat" else "completions"
        result = await load(url, spec, endpoint=api, prompts=prompts)
    summary = result.summary
    assert summary.calls["finished"] == 20, summary.remarks
    assert (summary.model, summary.dilation, summary.clock) == (MODEL, 2.0, "emulated")
    assert (summary.other_prompt_lengths, summary.other_output_lengths) == (0, 0)
    workload, asked = open_workload(spec), []
    while workload.next_arrival_ns() is not None:
        asked.append(workload.take())
    lengths = [(r.prompt_tokens, r.output_tokens) for r in asked]
    assert sorted((row["prompt_tokens"], row["output_tokens"]) for row in recorded(path)) == sorted(lengths)
    assert summary.emulated is not None
    emulated, wall = summary.emulated.latencies, summary.wall.latencies
    assert emulated.ttft_s.p50 is not None and wall.ttft_s.p50 is not None
    # Three visits of at least 400 us each, and never more than what the wall has seen.
    assert 0.0012 <= emulated.ttft_s.p50 <= wall.ttft_s.p50 / 2 + 0.001


@pytest.mark.parametrize("door", ["http", "grpc"])
async def test_emulated_rates_and_gaps_come_from_stamps_also_when_the_host_stands_still(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its first token the client stands still for half a second; nothing of that is in the emulated figures."""
    credit, stalls = LoadRecorder.credit, [0.5]

    def credit_late(recorder: LoadRecorder, time_ns: int, tokens: int) -> None:
        credit(recorder, time_ns, tokens)
        if stalls:
            time.sleep(stalls.pop())

    monkeypatch.setattr(LoadRecorder, "credit", credit_late)
    async with live(live_plan()) as cluster:
        url = cluster.url if door == "http" else f"grpc://{cluster.grpc}"
        summary = (await load(url, "closed:users=2,requests=8,input=20,output=40")).summary
    assert summary.calls["finished"] == 8, summary.remarks
    assert summary.emulated is not None
    emulated, wall = summary.emulated, summary.wall
    assert wall.latencies.itl_s.max > 0.4
    assert max(emulated.latencies.itl_s.max, emulated.latencies.ttft_s.max) < 0.05
    assert emulated.latencies.itl_s.mean == pytest.approx(emulated.latencies.tpot_s.mean, rel=0.01)
    assert emulated.duration_s < wall.duration_s - 0.3


async def test_a_conversation_finds_its_history(tmp_path: Path) -> None:
    """What a turn sends is what the turns before it and their replies add up to, as the server counts."""
    path = tmp_path / "session.jsonl"
    async with live(live_plan(), record=str(path)) as cluster:
        spec = "closed:users=2,requests=4,input=20,output=5"
        result = await load(cluster.url, spec, endpoint="chat", turns=Turns(3, 1_000_000))
    assert result.summary.calls["finished"] == 12
    assert result.summary.other_prompt_lengths == 0
    turn = [20, 20 + 5 + 20, 45 + 5 + 20]
    assert sorted(row["prompt_tokens"] for row in recorded(path)) == sorted(turn * 4)


async def test_a_recording_is_sent_again_with_its_cancellations(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    async with live(live_plan(), record=str(first)) as cluster:
        await load(cluster.url, "constant:rate=100,requests=5,input=10,output=4")
        await cluster.quiet()
    async with live(live_plan(), record=str(second)) as cluster:
        result = await load(cluster.url, str(first))
    assert result.summary.calls["finished"] == 5
    pairs = [[(row["prompt_tokens"], row["output_tokens"]) for row in recorded(path)] for path in (first, second)]
    assert pairs[0] == pairs[1]


async def test_a_full_queue_rejects(tmp_path: Path) -> None:
    async with live(live_plan(), queue=1, scheduling='{"max_running": 1}') as cluster:
        for url in (cluster.url, f"grpc://{cluster.grpc}"):
            result = await load(url, "constant:rate=100000,requests=8,input=10,output=40")
            calls = result.summary.calls
            assert calls["rejected"] >= 4
            assert calls["rejected"] + calls["finished"] == 8
            await cluster.quiet()


async def test_nobody_at_the_address() -> None:
    with pytest.raises(Unavailable, match="stageline up"):
        await load("grpc://127.0.0.1:1", "constant:rate=1,requests=1")


@pytest.mark.parametrize("door", ["http", "grpc"])
async def test_a_lost_stage_fails_its_calls_and_the_run_goes_on(door: str) -> None:
    async with live(live_plan()) as cluster:
        url = cluster.url if door == "http" else f"grpc://{cluster.grpc}"
        loading = asyncio.create_task(load(url, "closed:users=2,requests=4,input=10,output=1500"))

        async def both_under_way() -> bool:
            return await cluster.metric("stageline_live_requests") == 2

        await until(both_under_way)
        await cluster.stages[1].stop(0)
        result = await loading
    calls = result.summary.calls
    assert (calls["finished"], calls["total"]) == (0, 4)
    assert calls["failed"] + calls["rejected"] == 4
    if door == "http":  # over gRPC a call that is lost before its first token looks like one that was not taken
        assert calls["failed"] >= 2
    assert set(result.summary.reasons) <= {"error event", "HTTP 503", "UNAVAILABLE", "unreachable", "cut"}
    assert any("stage" in remark for remark in result.summary.remarks)


async def test_a_router_that_dies_cuts_its_streams_and_what_had_no_output_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies at the first token that the client gets; the other call may or may not have had one by then."""
    plan, path = live_plan(), tmp_path / "plan.json"
    path.write_bytes(plan.canonical())
    options = LocalOptions(router_flags=("--http-port=0", "--dilation=1"))
    async with LocalCluster(plan, path, options, lambda sentence: None) as servers:
        await servers.healthy()
        credit, dying = LoadRecorder.credit, [servers.router.pid]

        def kill_at_first(recorder: LoadRecorder, time_ns: int, tokens: int) -> None:
            credit(recorder, time_ns, tokens)
            if dying:
                os.kill(dying.pop(), signal.SIGKILL)

        monkeypatch.setattr(LoadRecorder, "credit", kill_at_first)
        url = f"http://{servers.router_endpoints.http}"
        summary = (await load(url, "closed:users=2,requests=6,input=10,output=500", retries=10)).summary
    failed = summary.calls["failed"]
    assert 1 <= failed <= 2
    assert summary.calls["finished"] == 6 - failed
    assert summary.reasons == {"cut": failed}


async def test_a_certificate_that_is_not_trusted_is_named_as_that(tmp_path: Path) -> None:
    own = Authority(tmp_path).files()
    async with live(live_plan(), tls_cert=own.cert, tls_key=own.key) as cluster:
        with pytest.raises(Unavailable, match=r"certificate is not trusted \(unable to get .*\); .* --tls-ca"):
            await load(cluster.url, "closed:users=1,requests=1,input=2,output=2")
        with pytest.raises(Unavailable, match="if it wants TLS, write https://"):
            await load(cluster.url.replace("https", "http"), "closed:users=1,requests=1,input=2,output=2")
        with pytest.raises(Unavailable, match="does not speak TLS"):
            await load(f"https://{cluster.stage_ports[0]}", "closed:users=1,requests=1,input=2,output=2")
