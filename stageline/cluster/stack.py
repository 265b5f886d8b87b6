"""The entries that a compose file and a stack for Docker Swarm have in common."""

from stageline.cluster import containers
from stageline.cluster.yaml_text import Alias, Flow, Yaml
from stageline.runtime.deployment import Deployment

# Settings that a variable of the shell sets in a container, where it is set. Not those that a file of services decides:
# addresses, ports, the plan, and what ends with a parent.
SHARED_SETTINGS = ("tls_cert", "tls_key", "tls_ca", "metrics_tls", "stage_key", "log_format", "log_level", "drain_s")
ROUTER_SETTINGS = (
    *SHARED_SETTINGS, "window", "live", "record", "otlp", "trace_sample", "served_model_name", "output_lengths",
    "tokenizer", "queue", "api_key", "rate_limit", "image_tokens", "trust_runs", "stage_deadline", "session_retries",
    "seed", "scheduling", "dashboards",
)  # fmt: skip


# A stage's ports are open to the other containers of its network only.
UNPUBLISHED: dict[str, Yaml] = {"STAGELINE_PUBLISHED": "none"}


def passed(settings: tuple[str, ...]) -> dict[str, Yaml]:
    """Variables without a value: Compose and `docker stack deploy` take that of the shell, or leave it out."""
    return {f"STAGELINE_{name.upper()}": None for name in settings}


def healthcheck(command: tuple[str, ...], interval_s: int) -> dict[str, Yaml]:
    """A health check by command. A container may take two minutes to start before it counts as unhealthy."""
    test: list[Yaml] = ["CMD", *command]
    block = any("\n" in part for part in command)
    return {
        "test": test if block else Flow(test),
        "interval": f"{interval_s}s",
        "timeout": "5s",
        "start_period": "120s",
    }


def stage_services(served: Deployment) -> dict[str, Yaml]:
    """One service per stage and replica, based on the anchor `stage`."""
    return {
        server.name: {
            "<<": Alias("stage"),
            "environment": {
                "<<": Alias("settings"),
                "STAGELINE_STAGE": str(server.stage),
                "STAGELINE_REPLICA": str(server.replica),
            },
        }
        for server in containers.stage_servers(served)
    }


def router_environment(served: Deployment, *, dilation: str, payload: str, host: str) -> dict[str, Yaml]:
    """The router's settings; its ports are published on `host`. Variables of the shell replace dilation and payload."""
    return {
        **passed(ROUTER_SETTINGS),
        "STAGELINE_PUBLISHED": f"{host}:${{STAGELINE_HTTP_PORT:-{containers.HTTP_PORT}}},"
        f"{host}:${{STAGELINE_PORT:-{containers.GRPC_PORT}}}",
        "STAGELINE_PLAN": containers.PLAN_FILE,
        "STAGELINE_STAGES": containers.stage_address_pattern(served),
        "STAGELINE_ADVERTISE": f"{containers.ROUTER}:{containers.GRPC_PORT}",
        "STAGELINE_PAYLOAD": f"${{STAGELINE_PAYLOAD:-{payload}}}",
        "STAGELINE_DILATION": f"${{STAGELINE_DILATION:-{dilation}}}",
    }
