"""TLS: a whole run and live requests over mutual TLS, and what strangers are told."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from router import check
from router.server import build as build_router
from router.settings import RouterSettings
from stage_server.server import build as build_stage
from stage_server.settings import StageSettings
from stageline.cli.main import invoke as stageline
from stageline.cluster.client_run import run_at
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.errors import StagelineError, Unauthenticated, Unavailable, UsageError
from stageline.report.run_writer import RunWriter
from stageline.report.summary import RunFacts
from stageline.runtime.server import Server
from stageline.testing import ListWorkload, Recorder
from stageline.wire.channels import Dialer
from stageline.wire.connection import ConnectionLost
from stageline.wire.generate import Finished, Generate, GenerateClient
from stageline.wire.router_client import RouterClient, RunOrder
from stageline.wire.tls import TlsFiles
from tests.certificates import Authority
from tests.cluster.live import live_plan
from tests.cluster.plans import small_plan, some_requests
from tests.cluster.servers import until

PLAN = small_plan(3, route=(0, 1, 2, 1))
COMMON = {"grpc_host": "127.0.0.1", "grpc_port": 0, "metrics_port": -1, "drain_s": 5.0}
KEY = "secret"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """Another authority, which nobody in the cluster believes."""
    return Authority(tmp_path, "stranger")


def settings_of(files: TlsFiles) -> dict[str, str]:
    """As a server takes them."""
    return {f"tls_{name}": path for name, path in msgspec.structs.asdict(files).items()}


@asynccontextmanager
async def secured(
    path: Path, stage_files: list[TlsFiles], router_files: TlsFiles, **router: object
) -> AsyncIterator[tuple[str, str]]:
    """Stages and their router; its gRPC and HTTP addresses."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):

        async def started(server: Server) -> Server:
            stack.push_async_callback(server.stop, 5)
            return server

        stages = []
        for files in stage_files:
            stage = await started(build_stage(StageSettings(**COMMON, **settings_of(files))))
            stages.append((await stage.start()).grpc)
            await stage.set_serving(True)
        common = COMMON | settings_of(router_files) | {"plan": str(path), "stages": ",".join(stages), "http_port": 0}
        server = await started(build_router(RouterSettings(**common, **router)))
        endpoints = await server.start()
        yield endpoints.grpc, endpoints.http


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_bytes(PLAN.canonical())
    return path


def digest_of(writer: RunWriter, totals: object) -> str:
    facts = RunFacts(engine="", seed=0, command="", workload="", rows={}, wall_s=0, credits=1)
    return writer.finish(totals, facts).digest or ""


async def run(address: str, files: TlsFiles, *, api_key: str = "", wait_s: float = 20) -> str:
    """One run; its digest."""
    order, writer = RunOrder(plan_digest=PLAN.digest(), scheduling=Scheduling(), seed=3), RunWriter(PLAN)
    dialer = Dialer(files, api_key=api_key)
    totals, _ = await run_at(address, order, ListWorkload(some_requests()), writer, wait_s=wait_s, dialer=dialer)
    return digest_of(writer, totals)


def expected() -> str:
    writer = RunWriter(PLAN)
    return digest_of(writer, inprocess.run(PLAN, Scheduling(), ListWorkload(some_requests()), seed=3, observer=writer))


async def test_a_run_over_mutual_tls_gives_the_digest_of_the_inprocess_engine(path: Path, authority: Authority) -> None:
    members = [authority.files(f"stage-{s}") for s in range(3)]
    async with secured(path, members, authority.files("router"), live=False) as (grpc, _):
        assert await run(grpc, authority.files("client")) == expected()


async def test_a_door_with_tls_leaves_the_links_between_stages_plain(path: Path, authority: Authority) -> None:
    own = authority.files("router")
    trusting = TlsFiles(ca=own.ca)
    async with secured(path, [trusting] * 3, TlsFiles(own.cert, own.key), live=False) as (grpc, _):
        assert await run(grpc, trusting) == expected()
        assert await run(f"grpcs://{grpc}", trusting) == expected()


async def test_strangers_are_refused_in_words(path: Path, authority: Authority, stranger: Authority) -> None:
    members = [authority.files()] * 3
    async with secured(path, members, authority.files("router"), live=False) as (grpc, _):

        async def refused(address: str, files: TlsFiles) -> StagelineError:
            with pytest.raises(StagelineError) as caught:
                await run(address, files, wait_s=0)
            return caught.value

        other = stranger.files()
        without = await refused(grpc, TlsFiles(ca=authority.ca))
        foreign = await refused(grpc, TlsFiles(other.cert, other.key, authority.ca))
        plain = await refused(grpc, TlsFiles())
        for error in (without, foreign, plain):
            assert type(error) is ConnectionLost
            assert "does it want TLS (--tls-ca), or a certificate (--tls-cert, --tls-key)?" in str(error)
        wrong_ca = await refused(grpc, TlsFiles(ca=other.ca))
        assert type(wrong_ca) is Unauthenticated
        assert "its certificate is not trusted (unable to get local issuer certificate); is --tls-ca" in str(wrong_ca)
        assert grpc in str(wrong_ca)


async def test_a_certificate_for_another_host_is_not_believed(path: Path, authority: Authority) -> None:
    elsewhere = authority.files("router", host="192.0.2.1")
    async with (
        secured(path, [authority.files()] * 3, elsewhere, live=False) as (grpc, _),
        RouterClient(grpc, Dialer(authority.files("client"))) as client,
    ):
        with pytest.raises(Unauthenticated, match="certificate is for another host"):
            await client.status()


async def test_a_server_without_tls_is_told_apart(path: Path, authority: Authority) -> None:
    async with secured(path, [TlsFiles()] * 3, TlsFiles(), live=False) as (grpc, _):
        async with RouterClient(grpc, Dialer(TlsFiles(ca=authority.ca))) as client:
            with pytest.raises(Unauthenticated, match="does not speak TLS; leave out --tls-ca"):
                await client.status()
        assert await run(f"grpc://{grpc}", TlsFiles(ca=authority.ca)) == expected()


async def test_the_check_of_a_router_that_only_believes_others_is_plain(path: Path, authority: Authority) -> None:
    async with secured(path, [TlsFiles()] * 3, TlsFiles(), live=False) as (grpc, _), RouterClient(grpc) as client:
        await client.healthy(20)
        probed = RouterSettings(grpc_port=int(grpc.rpartition(":")[2]), tls_ca=authority.ca)
        assert await check.healthy(probed)


async def test_a_stage_that_the_router_does_not_believe_is_named(
    path: Path, authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    members = [authority.files(), authority.files(), stranger.files()]
    async with secured(path, members, authority.files("router"), live=False) as (grpc, _):
        with pytest.raises(Unavailable, match="not healthy"):
            await run(grpc, authority.files("client"), wait_s=1)
        with pytest.raises(Unauthenticated, match=r"stage 2.* certificate is not trusted"):
            await run(grpc, authority.files("client"), wait_s=0)
    said = [record.error for record in caplog.records if record.message == "a stage can't be used"]
    assert len(said) == 1
    assert "stage 2" in said[0]


async def test_a_link_between_stages_that_do_not_believe_each_other_says_so(
    path: Path, tmp_path: Path, authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stageline.wire.grpc_options.CONNECT_S", 1.0)
    other, bundle = stranger.files(), tmp_path / "both.pem"
    bundle.write_bytes(b"".join(Path(one.ca).read_bytes() for one in (authority, stranger)))  # noqa: ASYNC240
    astray = TlsFiles(other.cert, other.key, authority.ca)
    own = authority.files("router")
    members = [authority.files(), astray, authority.files()]
    async with secured(path, members, TlsFiles(own.cert, own.key, str(bundle)), live=False) as (grpc, _):
        with pytest.raises((Unavailable, Unauthenticated), match=r"stage-.* certificate"):
            await run(grpc, authority.files("client"), wait_s=0)


async def test_live_requests_over_tls_with_a_key(tmp_path: Path, authority: Authority) -> None:
    plan = live_plan(3)
    (tmp_path / "live.json").write_bytes(plan.canonical())
    member = authority.files()
    trust = ssl.create_default_context(cafile=authority.ca)
    ask = {"prompt": "x", "max_tokens": 3}
    async with secured(tmp_path / "live.json", [member] * 3, member, api_key=KEY) as (grpc, http):
        dialer = Dialer(member, api_key=KEY)
        async with RouterClient(grpc, dialer) as client:
            await client.healthy(20)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:

            async def ready() -> bool:
                async with session.get(f"https://{http}/ready", ssl=trust) as reply:
                    return reply.status == 200

            await until(ready)
            async with session.post(f"https://{http}/v1/completions", json=ask, ssl=trust) as reply:
                assert (await reply.json())["usage"]["completion_tokens"] == 3
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://{http}/ready")
        request = Generate(prompt_ids=[1, 2], output_tokens=4, max_tokens=4)
        async with GenerateClient(f"grpcs://{grpc}", dialer) as client:
            parts = [part async for part in client.generate(request)]
        assert isinstance(parts[-1], Finished)
        assert parts[-1].output_tokens == 4
        port = int(grpc.rpartition(":")[2])
        probed = RouterSettings(grpc_port=port, **settings_of(member))
        assert await check.healthy(probed)


async def test_the_key_is_asked_for_over_grpc(tmp_path: Path) -> None:
    plan = live_plan(3)
    (tmp_path / "live.json").write_bytes(plan.canonical())
    async with secured(tmp_path / "live.json", [TlsFiles()] * 3, TlsFiles(), api_key=KEY) as (grpc, _):
        async with RouterClient(grpc, Dialer(api_key=KEY)) as client:
            await client.healthy(20)
        for dialer in (Dialer(), Dialer(api_key="wrong")):
            async with RouterClient(grpc, dialer) as client:
                with pytest.raises(Unauthenticated, match="API key"):
                    await client.status()
                order = RunOrder(plan_digest=plan.digest(), scheduling=Scheduling(), seed=0)
                with pytest.raises(Unauthenticated, match="API key"):
                    await client.run(order, iter(some_requests(2)), Recorder())
            async with GenerateClient(grpc, dialer) as live:
                with pytest.raises(Unauthenticated, match="API key"):
                    await anext(live.generate(Generate(prompt_ids=[1], output_tokens=1, max_tokens=1)))


async def test_servers_that_strangers_can_reach_warn(
    path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def warnings(host: str, files: TlsFiles, published: str = "") -> list[str]:
        caplog.clear()
        server = build_stage(
            StageSettings(**COMMON | {"grpc_host": host, "published": published}, **settings_of(files))
        )
        await server.start()
        await server.stop(0)
        return [record.message for record in caplog.records if "open to the network" in record.message]

    member = authority.files()
    assert await warnings("127.0.0.1", TlsFiles()) == []
    assert await warnings("0.0.0.0", member) == []
    open_to_all = "the gRPC port is open to the network without TLS (--tls-cert) and without certificates of clients"
    assert await warnings("0.0.0.0", TlsFiles()) == [f"{open_to_all} (--tls-ca)"]
    assert await warnings("0.0.0.0", TlsFiles(), "none") == []
    assert await warnings("0.0.0.0", TlsFiles(), "127.0.0.1:8000,localhost:50051") == []
    assert await warnings("0.0.0.0", TlsFiles(), "127.0.0.1:8000,10.0.0.7:50051") == [f"{open_to_all} (--tls-ca)"]
    with pytest.raises(UsageError, match="--published 8000: write it like"):
        await warnings("0.0.0.0", TlsFiles(), "8000")
    half = await warnings("0.0.0.0", TlsFiles(member.cert, member.key))
    assert half == ["the gRPC port is open to the network without certificates of clients (--tls-ca)"]


COMMAND = [sys.executable, "-c", "from stageline.cli.main import main; main()"]


async def test_commands_speak_tls(path: Path, authority: Authority, root: Path) -> None:
    """`up` with certificates, then `run`, `top` and `load` with and without them."""
    path.write_bytes(small_plan(1).canonical())  # noqa: ASYNC240
    member = authority.files()
    flags = ["--tls-cert", member.cert, "--tls-key", member.key, "--tls-ca", member.ca, "--api-key", KEY]
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]

    async def command(*words: str) -> tuple[int, str]:
        process = await _started(root, *words)
        out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()

    async with asyncio.timeout(300):
        up = await _started(root, "up", str(path), *ports, *flags, "--dilation", "100", "--metrics-tls")
        try:
            grpc, http, metrics = await _addresses(up)
            assert metrics[:8] == "https://"
            trusted = ssl.create_default_context(cafile=member.ca)
            async with aiohttp.ClientSession() as session, session.get(metrics, ssl=trusted) as reply:
                assert "stageline_plan_info" in await reply.text()
            assert (grpc[:8], http[:8]) == ("grpcs://", "https://")
            work = ["--workload", "constant:rate=2000,input=8,output=4,requests=10"]
            for words in (
                ["run", str(path), *work, "--cluster", grpc],
                ["top", grpc, "--interval", "0.1"],
                ["load", "--url", http, *work],
            ):
                code, text = await command(*words, *flags)
                assert code == 0, text
            code, text = await command("top", grpc, "--interval", "0.1", "--tls-ca", member.ca)
            assert code == 1
            assert "or a certificate (--tls-cert, --tls-key)?" in text
            up.terminate()
            assert await up.wait() == 0
        finally:
            if up.returncode is None:
                up.kill()
                await up.communicate()


async def _addresses(up: asyncio.subprocess.Process) -> tuple[str, str, str]:
    """Where the router takes gRPC and HTTP, and shows its metrics, once the cluster stands."""
    assert up.stdout is not None
    said: dict[str, list[str]] = {}
    while "next:" not in said:
        line = (await up.stdout.readline()).decode()
        assert line, (await up.communicate())[1].decode()
        said[line.split()[0]] = line.split()
    return said["router"][2], said["api"][1].removesuffix("/v1"), said["router"][4]


async def _started(root: Path, *words: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*COMMAND, *words, stdout=pipe, stderr=pipe, cwd=root)


def test_up_wants_all_three_files(path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["up", str(path), "--tls-ca", authority.ca]) == 2
    assert "together" in capsys.readouterr().err
    assert stageline(["up", str(path), "--metrics-tls"]) == 2
    assert "HTTPS needs a certificate" in capsys.readouterr().err


def replaced(old: TlsFiles, new: TlsFiles) -> None:
    """What a certificate manager does: other contents under the same names."""
    for mine, fresh in zip(msgspec.structs.astuple(old), msgspec.structs.astuple(new), strict=True):
        Path(mine).write_bytes(Path(fresh).read_bytes())


async def test_replaced_certificates_are_picked_up(path: Path, tmp_path: Path, authority: Authority) -> None:
    """All files of a cluster change, the authority among them. New connections use them: a client's, and the router's
    to a stage that was started again.
    """
    member = authority.files()
    common = COMMON | settings_of(member)
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        stage = build_stage(StageSettings(**common))
        address = (await stage.start()).grpc
        path.write_bytes(small_plan(1).canonical())  # noqa: ASYNC240
        router = build_router(RouterSettings(**common, plan=str(path), stages=address, http_port=0))
        stack.push_async_callback(router.stop, 5)
        endpoints = await router.start()
        async with RouterClient(endpoints.grpc, Dialer(member)) as client:
            await client.healthy(20)
        (tmp_path / "new").mkdir()
        fresh = Authority(tmp_path / "new", "fresh").files()
        await asyncio.to_thread(replaced, member, fresh)
        trust = ssl.create_default_context(cafile=fresh.ca)
        url = f"https://{endpoints.http}/health"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=trust) as reply:
            assert reply.status == 200
        await stage.stop(0)
        again = build_stage(StageSettings(**common | {"grpc_port": int(address.rpartition(":")[2])}))
        stack.push_async_callback(again.stop, 5)
        await again.start()
        async with RouterClient(endpoints.grpc, Dialer(fresh)) as client:
            await client.healthy(20)


async def test_metrics_are_served_by_https_where_asked(authority: Authority) -> None:
    member = authority.files()
    settings = COMMON | settings_of(member) | {"metrics_port": 0, "metrics_tls": True}
    stage = build_stage(StageSettings(**settings))
    try:
        url = f"https://{(await stage.start()).metrics}/metrics"
        trust = ssl.create_default_context(cafile=member.ca)
        async with aiohttp.ClientSession() as session, session.get(url, ssl=trust) as reply:
            assert "stageline_build_info" in await reply.text()
    finally:
        await stage.stop(0)
    with pytest.raises(UsageError, match="--metrics-tls without --tls-cert"):
        build_stage(StageSettings(**COMMON, metrics_tls=True))
