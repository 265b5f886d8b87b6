"""Compose files: the committed ones are up to date, and service names match the router's stage addresses."""

import shutil
from pathlib import Path

import msgspec
import pytest
import yaml

from router.settings import RouterSettings, stage_addresses
from stage_server.settings import StageSettings
from stageline.cli.main import invoke as run
from stageline.engine.fleet import Fleet, Pool
from stageline.runtime.deployment import Deployment, Document
from tests.cluster.plans import small_plan

COMMITTED = {
    "docker-compose.yml": "render compose deploy/compose/llama-3.1-70b.json",
    "deploy/swarm/stack.yml": "render swarm deploy/compose/llama-3.1-70b.json",
    "deploy/compose/kimi-k3.yml": "render compose deploy/compose/kimi-k3.json --name=stageline-kimi-k3",
}


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """A folder that counts as a checkout."""
    shutil.copytree(root / "deploy", tmp_path / "deploy")
    return tmp_path


@pytest.mark.parametrize("path", COMMITTED)
def test_a_committed_compose_file_is_fresh(
    path: str, root: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert run([*COMMITTED[path].split(), "-o", path]) == 0
    command = f"stageline {COMMITTED[path]} -o {path}"
    assert (root / path).read_text() == (checkout / path).read_text(), f"write it again: {command}"
    assert f"#   {command}\n" in (root / path).read_text()


def rendered(plan: Document, checkout: Path) -> dict[str, dict[str, dict[str, object]]]:
    """The compose file of a plan, parsed."""
    (checkout / "plan.json").write_bytes(msgspec.json.encode(plan))
    assert run(["render", "compose", str(checkout / "plan.json"), "-o", str(checkout / "out.yml")]) == 0
    read: dict[str, dict[str, dict[str, object]]] = yaml.safe_load((checkout / "out.yml").read_text())
    return read


FLEET = Fleet(pools=(Pool(name="small", plan=small_plan(1)), Pool(name="large", plan=small_plan(3, replicas=2))))


@pytest.mark.parametrize("plan", [small_plan(1), small_plan(3, replicas=2), small_plan(101), FLEET])
def test_every_stage_has_a_service_that_the_router_finds(plan: Document, checkout: Path) -> None:
    services = rendered(plan, checkout)["services"]
    environment = services["router"]["environment"]
    assert isinstance(environment, dict)
    addresses = [a for row in stage_addresses(environment["STAGELINE_STAGES"], Deployment(plan)) for a in row]
    others = {"router", "prometheus", "grafana", "load", "cli"}
    assert [f"{name}:50051" for name in services if name not in others] == addresses


def test_a_compose_file_outside_a_checkout_is_refused(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "out.yml"
    assert run(["render", "compose", str(checkout / "deploy/compose/kimi-k3.json"), "-o", str(elsewhere)]) == 2
    assert "inside a checkout of Stageline" in capsys.readouterr().err
    assert not elsewhere.exists()


@pytest.mark.parametrize("kind", ["compose", "swarm", "k8s"])
def test_all_files_have_the_same_flags(kind: str, checkout: Path) -> None:
    plan, out = checkout / "plan.json", checkout / "out.yml"
    plan.write_bytes(msgspec.json.encode(small_plan(2)))
    flags = ["--name=mine", "--image=registry.test/own:1", "--dilation=50", "--payload=size"]
    assert run(["render", kind, str(plan), *flags, "-o", str(out)]) == 0
    text = out.read_text()
    assert "mine" in text
    assert "registry.test/own:1" in text and "stageline:local" not in text and "STAGELINE_TAG" not in text
    assert "build:" not in text
    assert "STAGELINE_DILATION:-50" in text or '"50"' in text
    assert "STAGELINE_PAYLOAD:-size" in text or ("STAGELINE_PAYLOAD\n" in text and "size" in text)
    if kind != "k8s":
        assert f"#   stageline render {kind} plan.json {' '.join(flags)} -o out.yml\n" in text


DECIDED = {  # by the file itself: addresses, ports, the plan; and what is of no use in a container
    "grpc_host", "grpc_port", "metrics_port", "http_host", "http_port", "plan", "stages", "advertise", "published",
    "exit_with_parent", "payload", "dilation", "stage", "replica",
}  # fmt: skip


@pytest.mark.parametrize("path", ["docker-compose.yml", "deploy/compose/kimi-k3.yml", "deploy/swarm/stack.yml"])
def test_no_setting_of_the_shell_is_ignored(path: str, root: Path) -> None:
    """A variable without a value is that of the shell, if it is set there."""
    services = yaml.safe_load((root / path).read_text())["services"]
    for service, settings in (("router", RouterSettings), ("stage-00", StageSettings)):
        wanted = {f"STAGELINE_{name.upper()}" for name in settings.__struct_fields__ if name not in DECIDED}
        found = {name for name, value in services[service]["environment"].items() if value is None}
        assert found == wanted
