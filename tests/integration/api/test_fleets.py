"""Fleets from files and in runs: what a TOML file means, what is wrong with others, what a run of a fleet leaves."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import stageline
from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.errors import BadInput, DoesNotFit, UsageError
from stageline.report.digest import digest_of
from stageline.report.rundir import read_run_pools
from stageline.testing import uniform_plan

SPEC = "poisson:rate=1000,requests=40,input=uniform(5,40),output=uniform(1,9)"
PLAN = uniform_plan(
    2, service_ns=1000, token_ns=10, latency_ns=100, bytes_per_token=10, kv_budget_bytes=10**6, kv_block_bytes=160
)
MODEL = 'model = "llama-3.1-8b"\ndevice = "h100-sxm"\n'
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a fleet file beside a plan file."""
    (tmp_path / "plan.json").write_bytes(PLAN.canonical())

    def written(text: str) -> Path:
        path = tmp_path / "fleet.toml"
        path.write_text(text)
        return path

    return written


POOL = '[[pool]]\nname = "a"\n'
GIVEN = f'{POOL}plan = "plan.json"\n'


def test_a_file_says_everything(write: Write) -> None:
    path = write(
        """
        [kv-transfer]
        bandwidth = "400Gbit/s"
        latency = "20us"
        order = "destination-first"
        first-token = "decode"
        blocks = "missing"
        streamed = true
        local-prefill-tokens = 64
        decode-on-both = true

        [routing]
        balance = "least-loaded"
        front-end = "8ms"

        [[pool]]
        name = "first"
        role = "prefill"
        plan = "plan.json"
        replicas = 3
        egress = "100GB/s"
        port-latency = "1ms"
        scheduling = "--kv grow --microbatch 7"

        [[pool]]
        name = "then"
        role = "decode"
        plan = "plan.json"
        ingress = "25GB/s"

        [[pool]]
        name = "too"
        plan = "plan.json"
        """
    )
    fleet = stageline.plan_fleet(path).fleet
    assert fleet.hand_over == HandOver(
        bytes_per_s=50 * 10**9, latency_ns=20_000, order="destination-first", first_token="decode",
        transfer="missing", streamed=True, local_prefill_tokens=64, decode_on_both=True,
    )  # fmt: skip
    assert (fleet.balance, fleet.front_end_ns) == ("least-loaded", 8_000_000)
    assert [(p.name, p.role, p.plan.replicas) for p in fleet.pools] == [
        ("first", "prefill", 3),
        ("then", "decode", 1),
        ("too", "both", 1),
    ]
    assert [(p.egress_bytes_per_s, p.ingress_bytes_per_s) for p in fleet.pools] == [
        (10**11, 0),
        (0, 25 * 10**9),
        (0, 0),
    ]
    assert [p.port_latency_ns for p in fleet.pools] == [1_000_000, None, None]
    assert [(p.scheduling.kv, p.scheduling.microbatch) for p in fleet.pools] == [("grow", 7)] + [("reserve", None)] * 2


def test_a_pool_is_planned_as_the_command_would(write: Write, tmp_path: Path) -> None:
    flags = "--tp 2 --quantization fp8 --serving-engine sglang"
    planned = stageline.plan_fleet(write(f'[[pool]]\nname = "a"\nflags = "{flags}"\nreplicas = 2\n{MODEL}'))
    (pool,) = planned.fleet.pools
    alone = stageline.plan_model(
        "llama-3.1-8b", "h100-sxm", tensor_parallel=2, quantization="fp8", serving_engine="sglang", replicas=2
    ).plan
    assert msgspec.structs.replace(pool.plan, info={}) == msgspec.structs.replace(alone, info={})
    assert pool.plan.info["command"] == f"stageline plan llama-3.1-8b h100-sxm {flags}"
    planned.write(tmp_path / "fleet.json")
    assert stageline.plan_fleet(tmp_path / "fleet.json").fleet.digest() == planned.fleet.digest()


def test_paths_are_relative_to_the_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of plans, of models, and in flags."""
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path / "cards/engines").mkdir(parents=True)
    source = Path(stageline.__path__[0]) / "catalog/engines/sglang.toml"
    (tmp_path / "cards/engines/mine.toml").write_text(source.read_text().replace('name = "sglang"', 'name = "mine"'))
    flags = "--catalog cards --engine-profile mine"
    path = write(
        f'[[pool]]\nname = "a"\nflags = "{flags}"\n{MODEL}[[pool]]\nname = "b"\nmodel = "test"\nplan = "plan.json"'
    )
    with pytest.raises(BadInput, match="pool b: model beside plan; give a plan file, or what a plan is made from"):
        stageline.plan_fleet(path)
    path = write(path.read_text().replace('model = "test"\n', ""))
    pools = stageline.plan_fleet(path).fleet.pools
    assert [pool.plan.serving and pool.plan.serving.engine for pool in pools] == ["mine", msgspec.UNSET]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[pool]", "not valid TOML"),
        ("[[pools]]", "did you mean pool? known: pool, kv-transfer, routing"),
        ('[[pool]]\nnam = "a"', "did you mean name? known: name, role, plan, model, device, flags, replicas, engine-p"),
        (POOL + '[kv-transfer]\nbandwith = "1GB/s"', "did you mean bandwidth? known: network, bandwidth"),
        (POOL + 'role = "prefil"', "Invalid enum value 'prefil' - at `$.pool[0].role`"),
        (POOL, 'pool a: model is missing; give plan = "FILE", or model and device'),
        (POOL + 'model = "llama-3.1-8b"', "pool a: device is missing"),
        (POOL + 'plan = "none.json"', "none.json: can't be read: No such file"),
        ('[[pool]]\nname = "A b"\nplan = "plan.json"', "pool A b: Expected `str` matching regex"),
        (GIVEN + 'replicas = 0', "pool a, replicas: not between 1 and 65,536 (got 0)"),
        (GIVEN + 'egress = "9GB"', "pool a, egress: not a number with a unit (got '9GB')"),
        (GIVEN + 'ingress = 9', "Expected `str | null`, got `int` - at `$.pool[0].ingress`"),
        (POOL + f'flags = "--tp 4 --tq 2"\n{MODEL}', "pool a, flags: Unknown option: --tq"),
        (POOL + f'flags = "--tp four"\n{MODEL}', "pool a, flags: --tp: not a whole number"),
        (POOL + f'flags = "--tp \'4"\n{MODEL}', "pool a, flags: not a line of flags: No closing quotation"),
        (POOL + f'flags = "--tp 3"\n{MODEL}', "pool a: "),
        (POOL + f'flags = "--replicas 2"\nreplicas = 3\n{MODEL}', "pool a, replicas: its flags say 2 (got 3)"),
        (POOL + f'{MODEL.replace("8b", "9b")}', "pool a: model"),
        (GIVEN + 'scheduling = "--kv gro"', "pool a, scheduling: --kv gro: there is no"),
        (GIVEN + 'scheduling = "--workload x"', "pool a, scheduling: Unknown option"),
        (
            GIVEN + 'scheduling = "--balance kv"',
            "pool a, scheduling: balance is a setting of the router, which pools share",
        ),
        (
            GIVEN + 'scheduling = "--front-end 8ms"',
            "pool a, scheduling: front-end is a setting of the router, which pools share",
        ),
        (
            GIVEN + 'engine-profile = "sglang"\nscheduling = "--serving-engine vllm-v1"',
            "pool a, engine-profile: scheduling names one, too (got 'sglang'); say it once",
        ),
        (GIVEN + 'slo = "tpot"', "pool a, slo: unknown objective"),
        (GIVEN + '[routing]\nfront-end = "8"', "routing, front-end: not a number with a"),
        (GIVEN + '[kv-transfer]', 'kv-transfer: bandwidth is missing; give bandwidth = "50GB/s", or a network of the'),
        (GIVEN + '[kv-transfer]\nnetwork = "ndr"', "did you mean ndr-infiniband?"),
        (GIVEN + '[kv-transfer]\nbandwidth = "1"', "kv-transfer, bandwidth: not a number"),
        (
            GIVEN + '[kv-transfer]\nbandwidth = "1GB/s"\nlocal-prefill-tokens = -1',
            "kv-transfer: Expected `int` >= 0",
        ),
    ],
)  # fmt: skip
def test_what_a_file_can_get_wrong(text: str, message: str, write: Write) -> None:
    with pytest.raises(BadInput) as error:
        stageline.plan_fleet(write(text))
    assert str(error.value).startswith(("fleet ", "plan ", "link"))
    assert message in str(error.value)


def test_a_pool_that_does_not_fit_is_named(write: Write) -> None:
    text = '[[pool]]\nname = "small"\nmodel = "llama-3.1-405b"\ndevice = "h100-sxm"\nflags = "--devices 1"'
    with pytest.raises(DoesNotFit, match="pool small: "):
        stageline.plan_fleet(write(text))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('network = "ndr-infiniband"', (50 * 10**9, 3000)),
        ('network = "ndr-infiniband"\nbandwidth = "200GB/s"', (200 * 10**9, 3000)),
        ('network = "ndr-infiniband"\nlatency = "20us"', (50 * 10**9, 20_000)),
        ('bandwidth = "1GB/s"', (10**9, 0)),
    ],
)
def test_the_network_may_be_the_catalogues(text: str, wanted: tuple[int, int], write: Write) -> None:
    roles = "".join(f'[[pool]]\nname = "{r}"\nrole = "{r}"\nplan = "plan.json"\n' for r in ("prefill", "decode"))
    found = stageline.plan_fleet(write(f"{roles}[kv-transfer]\n{text}")).fleet.hand_over
    assert found is not None
    assert (found.bytes_per_s, found.latency_ns) == wanted


def test_slo_batching_keeps_the_tpot_of_its_pool(write: Write) -> None:
    text = '[[pool]]\nname = "a"\nplan = "plan.json"\nscheduling = "--batching slo"\nslo = "tpot=50ms"'
    (pool,) = stageline.plan_fleet(write(text)).fleet.pools
    assert pool.scheduling.tpot_slo_ns == 50_000_000


def test_engines_with_unlike_front_ends_need_one_of_the_router(write: Write, tmp_path: Path) -> None:
    """What the serving engine takes before the scheduler sees a request is the router's own time."""
    engines = {"a": 5, "b": 7}
    for name, ns in engines.items():
        serving = {"engine": name, "front_end_ns": ns}
        document = msgspec.json.decode(PLAN.canonical()) | {"serving": serving}
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(document))
    text = "".join(f'[[pool]]\nname = "{name}"\nplan = "{name}.json"\n' for name in engines)
    with pytest.raises(BadInput, match=r"pools a and b take different times .* say which in \[routing\]"):
        stageline.plan_fleet(write(text))
    assert stageline.plan_fleet(write(f'{text}[routing]\nfront-end = "9ns"')).fleet.front_end_ns == 9
    assert stageline.plan_fleet(write('[[pool]]\nname = "b"\nplan = "b.json"')).fleet.front_end_ns == 7


@pytest.mark.parametrize("given", [{}, {"kv": "grow", "balance": "least-loaded", "front_end_ns": 500}])
def test_one_pool_is_the_plan_itself(given: dict[str, object], tmp_path: Path) -> None:
    """The digest, and the records; the plan's own settings and those that a run changes."""
    plan = msgspec.structs.replace(PLAN, replicas=2)
    fleet = Fleet(pools=(Pool(name="only", plan=plan),))
    alone = stageline.run(plan, SPEC, **given)  # type: ignore[arg-type]
    pooled = stageline.run(fleet, SPEC, output=tmp_path, **given)  # type: ignore[arg-type]
    assert pooled.summary.digest == alone.summary.digest == digest_of(tmp_path)
    assert pooled.requests == alone.requests


def test_a_run_directory_holds_the_fleet(tmp_path: Path) -> None:
    slow = uniform_plan(1, service_ns=5000, replicas=2)
    fleet = Fleet(pools=(Pool(name="fast", plan=PLAN), Pool(name="slow", plan=slow)), balance="least-loaded")
    run = stageline.run(fleet, SPEC, output=tmp_path, kv="grow")
    pools = read_run_pools(tmp_path)
    assert not (tmp_path / "plan.json").exists()
    assert [pool.scheduling and pool.scheduling.kv for pool in pools.pools] == ["grow", "grow"]
    assert run.summary.topology.plan_digest == pools.source.digest()
    assert run.summary.topology.fleet == "1 x fast + 2 x slow"
    assert stageline.read_run(tmp_path).plan == run.plan == pools.source
    again = stageline.run(pools.source, SPEC)  # type: ignore[arg-type]
    assert again.summary.digest == run.summary.digest
    stageline.run(PLAN, SPEC, output=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"plan.json"}
    assert not (tmp_path / "fleet.json").exists()


def test_figures_are_those_of_each_pool() -> None:
    """Recounted from the records."""
    slow = uniform_plan(1, service_ns=5000, replicas=2)
    run = stageline.run(Fleet(pools=(Pool(name="fast", plan=PLAN), Pool(name="slow", plan=slow))), SPEC)
    window_s = run.summary.emulated_s
    for pool, replicas in zip(run.summary.pools, ({0}, {1, 2}), strict=True):
        own = [record for record in run.requests if record.replica in replicas]
        stages = [record for record in run.stages if record.replica in replicas]
        assert pool.requests == pool.finished == len(own)
        assert pool.output_tokens == sum(record.output_tokens for record in own)
        assert pool.output_tokens_per_s == pytest.approx(pool.output_tokens / window_s)
        assert pool.busy_ratio == sum(s.busy_ns for s in stages) / sum(s.window_ns for s in stages)
        assert pool.queue_s.max == max((r.admitted_ns or 0) - r.arrival_ns for r in own) / 1e9
    assert sum(pool.requests for pool in run.summary.pools) == 40
    assert run.summary.stage_name(run.summary.busiest_stage) == "slow/0"


def test_requests_name_their_model(tmp_path: Path) -> None:
    rows = [{"arrival_ns": i, "prompt_tokens": 4, "output_tokens": 2, "model": m} for i, m in enumerate("abbac")]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(msgspec.json.encode(row).decode() for row in rows))
    pools = tuple(Pool(name=name, plan=uniform_plan(1, model=name)) for name in "ab")
    run = stageline.run(Fleet(pools=pools), trace)
    assert [record.replica for record in run.requests] == [0, 1, 1, 0, None]
    assert run.requests[-1].outcome == "refused"


def test_what_a_fleet_does_not_take(write: Write, tmp_path: Path) -> None:
    fleet = Fleet(pools=(Pool(name="only", plan=PLAN),))
    text = '[[pool]]\nname = "a"\nplan = "plan.json"'
    with pytest.raises(BadInput, match="its pools are not planned yet; give run what plan_fleet returns"):
        stageline.run(write(text), SPEC)
    with pytest.raises(UsageError, match="--serving-engine sglang: each pool of a fleet has its own"):
        stageline.run(fleet, SPEC, serving_engine="sglang")
    with pytest.raises(UsageError, match="my:Policy: servers import no code that a fleet names"):
        stageline.run(fleet, SPEC, cluster="localhost:1", queueing="my:Policy")
    with pytest.raises(UsageError, match="fleet, pool only: --speculate needs the probability"):
        stageline.run(fleet, SPEC, speculate=2)
    with pytest.raises(BadInput, match="pools: two pools have this name"):
        stageline.run(Fleet(pools=fleet.pools * 2), SPEC)
    stageline.run(fleet, SPEC, output=tmp_path / "run")
    with pytest.raises(BadInput, match="it is the run of a fleet, and only runs of one plan can be made again"):
        stageline.tune(tmp_path / "run")
