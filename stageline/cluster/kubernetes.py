"""A plan as Kubernetes manifests: the objects that the Helm chart in deploy/helm makes with its default values."""

import hashlib
from dataclasses import dataclass

from stageline.cluster import containers
from stageline.cluster.yaml_text import Yaml, emit
from stageline.runtime.deployment import Deployment

_STAGE, _ROUTER = "stage", "router"
_PORTS = {"http": containers.HTTP_PORT, "grpc": containers.GRPC_PORT, "metrics": containers.METRICS_PORT}
_STAGE_PORTS = ("grpc", "metrics")
_ROUTER_PORTS = ("http", "grpc", "metrics")
_GRACE_S = 15
# Measured, see docs/scale-out.md. No CPU limit: it would only slow the emulation down.
_RESOURCES: dict[str, dict[str, Yaml]] = {
    _STAGE: {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
    _ROUTER: {"requests": {"cpu": "200m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
}

Object = dict[str, Yaml]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """`name` is what Helm calls a release; a namespace can hold several."""

    name: str = "stageline"
    image: str = containers.IMAGE
    payload: str = "capped"
    dilation: str = "auto"
    log_level: str = "info"
    tls: bool = False  # the servers will have certificates, so that Kubernetes' gRPC probes can't ask them


def manifests(served: Deployment, plan_text: str, options: KubernetesOptions) -> str:
    """All objects as one YAML stream; `plan_text` is the content of the mounted plan file."""
    objects = [
        _object("v1", "ConfigMap", options, "plan", data={"plan.json": plan_text}),
        *_stages(served, options),
        *_router(plan_text, options),
        *_network_policies(options),
    ]
    return "---\n".join(emit(entry) for entry in objects)


def _labels(options: KubernetesOptions, component: str = "") -> Object:
    labels: Object = {"app.kubernetes.io/name": "stageline", "app.kubernetes.io/instance": options.name}
    return labels | ({"app.kubernetes.io/component": component} if component else {})


def _object(
    version: str, kind: str, options: KubernetesOptions, suffix: str, component: str = "", **rest: Yaml
) -> Object:
    metadata: Object = {"name": f"{options.name}-{suffix}", "labels": _labels(options, component)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _stages(served: Deployment, options: KubernetesOptions) -> list[Object]:
    labels = _labels(options, _STAGE)
    service: Object = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
    budget: Object = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return [
        _object("v1", "Service", options, "stages", _STAGE, spec=service | {"ports": _service_ports(_STAGE_PORTS)}),
        *(_stateful_set(served, options, replica) for replica in range(served.replicas)),
        _object("policy/v1", "PodDisruptionBudget", options, "stages", spec=budget),
    ]


def _stateful_set(served: Deployment, options: KubernetesOptions, replica: int) -> Object:
    labels = _labels(options, _STAGE) | {"stageline/replica": str(replica)}
    spread: Object = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _labels(options, _STAGE)},
    }
    probe: Object = {"tcpSocket" if options.tls else "grpc": {"port": containers.GRPC_PORT}}
    container = _container(_STAGE, containers.STAGE_COMMAND, options, {}, _STAGE_PORTS) | {
        "startupProbe": probe | {"periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": probe | {"periodSeconds": 10},
        "livenessProbe": probe | {"periodSeconds": 30, "failureThreshold": 3},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec: Object = {
        "serviceName": f"{options.name}-stages",
        "replicas": len(served.plan(replica).stages),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": _pod(container, [_tmp()]) | {"topologySpreadConstraints": [spread]},
        },
    }
    return _object("apps/v1", "StatefulSet", options, f"r{replica}", _STAGE, spec=spec)


def _router(plan_text: str, options: KubernetesOptions) -> list[Object]:
    name, labels = options.name, _labels(options, _ROUTER)
    environment = {
        "PLAN": containers.PLAN_FILE,
        "STAGES": f"{name}-r{{replica}}-{{stage}}.{name}-stages:{containers.GRPC_PORT}",
        "ADVERTISE": f"{name}-router:{containers.GRPC_PORT}",
        "PAYLOAD": options.payload,
        "DILATION": options.dilation,
    }
    mounts: list[Yaml] = [
        {"name": "plan", "mountPath": containers.PLAN_FOLDER, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    ready: Object = {"grpc": {"port": containers.GRPC_PORT}}
    if options.tls:
        ready = {"exec": {"command": ["python", "-m", "router.check"]}, "timeoutSeconds": 5}
    container = _container(_ROUTER, containers.ROUTER_COMMAND, options, environment, _ROUTER_PORTS) | {
        "readinessProbe": ready | {"periodSeconds": 5},
        "livenessProbe": {"tcpSocket": {"port": containers.GRPC_PORT}, "periodSeconds": 30, "failureThreshold": 3},
        "volumeMounts": mounts,
    }
    annotations: Object = {"stageline/plan": hashlib.sha256(plan_text.encode()).hexdigest()}
    spec: Object = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": _pod(container, [{"name": "plan", "configMap": {"name": f"{name}-plan"}}, _tmp()]),
        },
    }
    service: Object = {"type": "ClusterIP", "publishNotReadyAddresses": True, "selector": labels}
    return [
        _object("v1", "Service", options, "router", _ROUTER, spec=service | {"ports": _service_ports(_ROUTER_PORTS)}),
        _object("apps/v1", "Deployment", options, "router", _ROUTER, spec=spec),
    ]


def _network_policies(options: KubernetesOptions) -> list[Object]:
    """Only the release's own pods may call stages over gRPC; anyone may read metrics and call the router."""
    own: Object = {"podSelector": {"matchLabels": _labels(options)}}
    rules: dict[str, list[Yaml]] = {
        _STAGE: [{"from": [own], "ports": _open("grpc")}, {"ports": _open("metrics")}],
        _ROUTER: [{"ports": _open(*_ROUTER_PORTS)}],
    }
    suffix = {_STAGE: "stages", _ROUTER: "router"}
    return [
        _object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            options,
            suffix[component],
            spec={
                "podSelector": {"matchLabels": _labels(options, component)},
                "policyTypes": ["Ingress"],
                "ingress": ingress,
            },
        )
        for component, ingress in rules.items()
    ]


def _container(
    name: str, command: tuple[str, ...], options: KubernetesOptions, settings: dict[str, str], ports: tuple[str, ...]
) -> Object:
    environment = {"LOG_LEVEL": options.log_level, "LOG_FORMAT": "json"} | settings
    return {
        "name": name,
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [{"name": f"STAGELINE_{key}", "value": value} for key, value in environment.items()],
        "ports": [{"name": port, "containerPort": _PORTS[port]} for port in ports],
        "resources": _RESOURCES[name],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _pod(container: Object, volumes: list[Yaml]) -> Object:
    """A pod without service links, whose variables would be mistaken for settings."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": containers.USER,
            "runAsGroup": containers.USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }


def _tmp() -> Object:
    return {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}


def _service_ports(names: tuple[str, ...]) -> list[Yaml]:
    return [{"name": name, "port": _PORTS[name], "targetPort": name} for name in names]


def _open(*names: str) -> list[Yaml]:
    return [{"protocol": "TCP", "port": _PORTS[name]} for name in names]
