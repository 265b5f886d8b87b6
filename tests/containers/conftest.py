"""A Docker daemon and the image, built once per run. Missing, they skip the tests, and in CI they fail them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

IMAGE = "stageline:test"


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The daemon's API."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        missing = f"no Docker daemon answers: {error}"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    yield client
    client.close()


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient, root: Path) -> str:
    """The tag of an image built from the Dockerfile as it is."""
    command = ["docker", "build", "--file", "deploy/Dockerfile", "--tag", IMAGE, "."]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return IMAGE
