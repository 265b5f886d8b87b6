"""Drives `docker compose` on a compose file as it is, under a name and on ports of its own."""

import os
import subprocess
from pathlib import Path

PROJECT = "stageline-test"
PORTS = ("STAGELINE_PORT", "STAGELINE_HTTP_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")


class Compose:
    """One project. `docker compose` is the user's way in, so it is the test's."""

    def __init__(self, root: Path, tag: str, **variables: str) -> None:
        self._root = root
        self._environ = os.environ | dict.fromkeys(PORTS, "0") | {"STAGELINE_TAG": tag} | variables

    def __call__(self, *arguments: str) -> str:
        """Standard output of a command that must succeed."""
        command = ["docker", "compose", "--progress", "quiet", "--project-name", PROJECT, *arguments]
        done = subprocess.run(command, cwd=self._root, env=self._environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def address(self, service: str, port: int) -> str:
        """host:port on this machine where a service's port is published."""
        return self("port", service, str(port)).strip()
