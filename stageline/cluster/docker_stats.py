"""CPU and memory of a cluster's containers: CPU between two samples, memory without the page cache."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from docker.models.containers import Container

from stageline.cluster.parts import Usage

_BETWEEN_SAMPLES_S = 1.0
_MAX_CONCURRENT = 8


def usage(members: Mapping[str, Container]) -> list[Usage]:
    """The usage of all running containers, in the order given."""
    running = {part: container for part, container in members.items() if container.status == "running"}
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        first = list(pool.map(_sample, running.values()))
        time.sleep(_BETWEEN_SAMPLES_S)
        second = list(pool.map(_sample, running.values()))
    return [Usage(part, _cores(a, b), _memory_bytes(b)) for part, a, b in zip(running, first, second, strict=True)]


def _sample(container: Container) -> dict[str, Any]:
    assert container.client is not None and container.id is not None
    stats: dict[str, Any] = container.client.api.stats(container.id, stream=False, one_shot=True)
    return stats


def _cores(first: dict[str, Any], second: dict[str, Any]) -> float:
    spent_ns = second["cpu_stats"]["cpu_usage"]["total_usage"] - first["cpu_stats"]["cpu_usage"]["total_usage"]
    passed = (_time(second) - _time(first)).total_seconds()
    return max(0.0, spent_ns / 1e9 / passed) if passed > 0 else 0.0


def _memory_bytes(stats: dict[str, Any]) -> int:
    """Memory without the inactive page cache, which cgroup v2 and v1 name differently."""
    memory = stats["memory_stats"]
    details = memory.get("stats", {})
    inactive = details.get("inactive_file", details.get("total_inactive_file", 0))
    return int(memory.get("usage", 0) - inactive)


def _time(stats: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(stats["read"][:26].rstrip("Z") + "+00:00")
