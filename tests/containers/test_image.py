"""The image: what is in it, who it runs as, and what it can do without."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import docker

from stageline.cluster.docker_image import stale_image

# What every container of ours is given, and no more.
CONFINED: dict[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "tmpfs": {"/tmp": ""},
    "network_mode": "none",
    "remove": True,
}
IMPORTS = "import stageline.v1, stage_server, router, grpc, uvloop, matplotlib.pyplot; print(stageline.v1.__file__)"
SECRET = re.compile(r"(?i)(password|secret|token|api_?key)=")


def test_every_part_imports_confined(engine: docker.DockerClient, image: str) -> None:
    printed = engine.containers.run(image, ["python", "-c", IMPORTS], **CONFINED).decode().strip()
    assert printed.startswith("/app/lib/")


def test_it_holds_the_sources_of_this_checkout(engine: docker.DockerClient, image: str) -> None:
    assert stale_image(engine, image, engine.images.get(image).id) == ""


def test_it_runs_as_nobody_in_particular(engine: docker.DockerClient, image: str) -> None:
    assert engine.images.get(image).attrs["Config"]["User"] == "10001:10001"
    assert engine.containers.run(image, ["id", "-u"], **CONFINED).decode().strip() == "10001"
    status = engine.containers.run(image, ["grep", "CapEff", "/proc/self/status"], **CONFINED).decode()
    assert int(status.split()[1], 16) == 0


def test_it_holds_no_source_tree_no_pip_and_no_secret(engine: docker.DockerClient, image: str) -> None:
    program = ["sh", "-c", "ls -A / /app/bin && ls -A /data | wc -l"]
    listing = engine.containers.run(image, program, **CONFINED).decode().split()
    assert "stageline" in listing
    assert {"src", "pip"} & set(listing) == set()
    assert listing[-1] == "0"
    history = engine.images.get(image).history()
    config = engine.images.get(image).attrs["Config"]
    assert not SECRET.search("\n".join([*config["Env"], *(layer["CreatedBy"] for layer in history)]))


def test_ours_is_smaller_than_250_mb(engine: docker.DockerClient, image: str) -> None:
    ours = sum(layer["Size"] for layer in engine.images.get(image).history()[:-1])
    assert ours < 250e6


def test_the_dockerfile_is_lint_free(root: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, root / "deploy/Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_prometheus_reads_its_configuration(engine: docker.DockerClient, root: Path) -> None:
    printed = engine.containers.run(
        "prom/prometheus:v2.53.3",
        ["check", "config", "/etc/stageline/prometheus.yml"],
        entrypoint="promtool",
        volumes={str(root / "deploy/prometheus"): {"bind": "/etc/stageline", "mode": "ro"}},
        **CONFINED | {"tmpfs": {"/prometheus": ""}},  # otherwise its image leaves a volume behind
    ).decode()
    assert "SUCCESS" in printed
