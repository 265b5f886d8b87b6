"""Kubernetes: chart and manifests make the same objects, all valid, for small and large plans."""

from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import msgspec
import pytest
import yaml

from stageline.cli.main import invoke as run
from stageline.cluster.stack import ROUTER_SETTINGS
from stageline.engine.fleet import Fleet, Pool
from stageline.runtime.deployment import read_deployment
from tests.cluster.plans import small_plan

VERSIONS = ("1.27", "1.32", "1.37")
Object = dict[str, Any]


@pytest.fixture(scope="module")
def chart(root: Path) -> Path:
    """The folder of the chart."""
    return root / "deploy/helm/stageline"


@pytest.fixture(params=["llama-3.1-70b", "kimi-k3", "two-replicas", "fleet"])
def plan(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Path:
    """8 stages, 59 stages, 2 x 3 stages, a fleet of 1 and 2 x 3 stages."""
    if request.param not in ("two-replicas", "fleet"):
        return root / f"deploy/compose/{request.param}.json"
    path, two = tmp_path / "plan.json", small_plan(3, replicas=2)
    fleet = Fleet(pools=(Pool(name="small", plan=small_plan(1)), Pool(name="large", plan=two)))
    path.write_bytes(msgspec.json.encode(two if request.param == "two-replicas" else fleet))
    return path


def from_chart(chart: Path, plan: Path, **values: object) -> list[Object]:
    """The objects that the chart renders for a plan and values."""
    with helm_python.Chart.load(str(chart)) as loaded:
        rendered = loaded.render({"plan": plan.read_text(), **values}, name="stageline", namespace="default")
    texts = [text for path, text in rendered.items() if not path.endswith(("NOTES.txt", ".tpl"))]
    return [entry for text in texts for entry in yaml.safe_load_all(text) if entry]


def from_command(plan: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> list[Object]:
    """The objects that `stageline render k8s` renders."""
    assert run(["render", "k8s", str(plan), *flags]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, which must be unique."""
    named = {(entry["kind"], entry["metadata"]["name"]): entry for entry in objects}
    assert len(named) == len(objects)
    return named


def validate(objects: list[Object]) -> None:
    """Validates strictly: unknown fields are errors. Custom resources are skipped, as they have no schema."""
    for entry in objects:
        if entry["kind"] != "ServiceMonitor":
            for version in VERSIONS:
                kubernetes_validate.validate(entry, version, strict=True)


def test_the_chart_and_the_command_make_the_same_objects(
    chart: Path, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = from_command(plan, capsys)
    validate(made)
    assert by_name(from_chart(chart, plan)) == by_name(made)


def test_a_pod_for_every_stage_under_the_name_that_the_router_asks_for(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = by_name(from_command(plan, capsys, "--name", "mine"))
    served = read_deployment(plan)
    sets = [entry for (kind, _), entry in made.items() if kind == "StatefulSet"]
    stages = [len(served.plan(replica).stages) for replica in range(served.replicas)]
    assert [entry["spec"]["replicas"] for entry in sets] == stages
    container = made["Deployment", "mine-router"]["spec"]["template"]["spec"]["containers"][0]
    pattern = {entry["name"]: entry["value"] for entry in container["env"]}["STAGELINE_STAGES"]
    for replica, entry in enumerate(sets):
        last = f"{entry['metadata']['name']}-{entry['spec']['replicas'] - 1}"
        wanted = pattern.format(replica=replica, stage=entry["spec"]["replicas"] - 1)
        assert wanted == f"{last}.{entry['spec']['serviceName']}:50051"
        assert ("Service", entry["spec"]["serviceName"]) in made


def test_every_switch_of_the_chart_gives_valid_objects(chart: Path, root: Path) -> None:
    plan = root / "deploy/compose/llama-3.1-70b.json"
    everything = from_chart(
        chart,
        plan,
        image={"repository": "registry.example/stageline", "tag": "1", "pullPolicy": "Always"},
        nodeSelector={"pool": "cpu"},
        tolerations=[{"key": "cpu", "operator": "Exists"}],
        serviceMonitor={"enabled": True, "labels": {"release": "prometheus"}},
        dashboards={"enabled": True, "files": {"pipeline": '{"title": "x"}'}},
        router={"service": {"type": "LoadBalancer"}},
    )
    validate(everything)
    kinds = [entry["kind"] for entry in everything]
    assert (kinds.count("ServiceMonitor"), kinds.count("ConfigMap")) == (1, 2)
    nothing = from_chart(
        chart,
        plan,
        networkPolicy={"enabled": False},
        podDisruptionBudget={"enabled": False},
        topologySpread={"enabled": False},
    )
    validate(nothing)
    assert sorted(entry["kind"] for entry in nothing) == [
        "ConfigMap",
        "Deployment",
        "Service",
        "Service",
        "StatefulSet",
    ]


def test_pods_are_confined(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for entry in from_command(plan, capsys):
        if entry["kind"] in ("StatefulSet", "Deployment"):
            pod = entry["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["automountServiceAccountToken"] is False
            for container in pod["containers"]:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"plan": ""}, "plan"),
        ({"plan": "not json"}, "make one with stageline plan"),
        ({"plan": '{"stages": []}', "payload": "everything"}, "payload"),
        ({"plan": '{"stages": []}', "stages": 8}, "stages"),
    ],
)
def test_values_that_make_no_sense_are_refused(chart: Path, values: dict[str, object], complaint: str) -> None:
    with helm_python.Chart.load(str(chart)) as loaded, pytest.raises(helm_python.HelmError, match=complaint):
        loaded.render(values, name="stageline", namespace="default")


def test_the_chart_is_lint_free(chart: Path, root: Path) -> None:
    plan = (root / "deploy/compose/llama-3.1-70b.json").read_text()
    assert helm_python.lint(str(chart), values={"plan": plan}, strict=True)["errors"] == []


def environment(entry: Object) -> dict[str, str]:
    """The variables of a pod's only container."""
    (container,) = entry["spec"]["template"]["spec"]["containers"]
    return {v["name"]: v["value"] for v in container["env"]}


def test_settings_of_the_chart_reach_the_servers(chart: Path, root: Path) -> None:
    plan = root / "deploy/compose/llama-3.1-70b.json"
    settings = {"api_key": "secret", "queue": 200, "scheduling": '{"kv": "grow"}', "tls_ca": "/tls/ca.pem"}
    mount = {"name": "tls", "mountPath": "/tls", "readOnly": True}
    objects = from_chart(
        chart, plan, settings=settings, envFrom=[{"secretRef": {"name": "keys"}}],
        volumes=[{"name": "tls", "secret": {"secretName": "tls"}}], volumeMounts=[mount],
    )  # fmt: skip
    validate(objects)
    named = by_name(objects)
    router, stage = named["Deployment", "stageline-router"], named["StatefulSet", "stageline-r0"]
    given = {f"STAGELINE_{name.upper()}": str(value) for name, value in settings.items()}
    assert given.items() <= environment(router).items()
    assert environment(stage)["STAGELINE_TLS_CA"] == "/tls/ca.pem"
    assert "STAGELINE_API_KEY" not in environment(stage)
    for entry in (router, stage):
        pod = entry["spec"]["template"]["spec"]
        assert mount in pod["containers"][0]["volumeMounts"] and pod["containers"][0]["envFrom"]
        assert "tls" in [volume["name"] for volume in pod["volumes"]]


def test_probes_and_scrapes_follow_tls(chart: Path, root: Path) -> None:
    """Kubernetes' gRPC probes speak plain text: under TLS they would restart every stage for ever."""
    plan = root / "deploy/compose/llama-3.1-70b.json"
    settings = {"tls_cert": "/tls/own.pem", "metrics_tls": True}
    trust = {"caFile": "/etc/prometheus/ca.pem"}
    objects = from_chart(chart, plan, settings=settings, serviceMonitor={"enabled": True, "tlsConfig": trust})
    validate(objects)
    named = by_name(objects)
    for entry in (named["Deployment", "stageline-router"], named["StatefulSet", "stageline-r0"]):
        (container,) = entry["spec"]["template"]["spec"]["containers"]
        probes = [probe for name, probe in container.items() if name.endswith("Probe")]
        assert probes and not any("grpc" in probe for probe in probes)
        assert environment(entry)["STAGELINE_METRICS_TLS"] == "true"
    (endpoint,) = named["ServiceMonitor", "stageline"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", trust)


def probes_of(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """The probes of every pod, by its object."""
    pods = {key: entry for key, entry in by_name(objects).items() if key[0] in ("Deployment", "StatefulSet")}
    containers = {key: entry["spec"]["template"]["spec"]["containers"][0] for key, entry in pods.items()}
    return {key: {name: value for name, value in c.items() if name.endswith("Probe")} for key, c in containers.items()}


def test_the_command_has_the_probes_of_the_chart(chart: Path, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secured = from_command(plan, capsys, "--tls")
    validate(secured)
    assert probes_of(secured) == probes_of(from_chart(chart, plan, settings={"tls_cert": "/tls/own.pem"}))
    plain = probes_of(from_command(plan, capsys))
    assert plain == probes_of(from_chart(chart, plan))
    assert all("grpc" in probes["readinessProbe"] for probes in plain.values())


def test_the_chart_knows_every_setting_and_no_other(chart: Path, root: Path) -> None:
    schema = msgspec.json.decode((chart / "values.schema.json").read_bytes())["properties"]["settings"]
    (pattern,) = schema["patternProperties"]
    logged = {"log_level", "log_format"}  # logLevel, and always JSON
    assert set(pattern.strip("^$()").split("|")) == {*ROUTER_SETTINGS} - logged
    assert schema["additionalProperties"] is False
    with pytest.raises(Exception, match="api_keys"):
        from_chart(chart, root / "deploy/compose/llama-3.1-70b.json", settings={"api_keys": "x"})
