"""The Docker daemon that DOCKER_HOST names, and its errors as Stageline's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import docker
import requests
from docker.errors import APIError, DockerException

from stageline.errors import RunFailed, Unavailable

CONNECTIONS = 16  # concurrent calls
_TIMEOUT_S = 120  # to stop a container takes 10 s and more
_HELLO_S = 10  # one that does not say its version in that time hangs


@contextmanager
def docker_client(timeout_s: int = _TIMEOUT_S) -> Iterator[docker.DockerClient]:
    """A client of the daemon, which may take that long for an answer. Raises Unavailable when none answers or what
    answers is no Docker daemon, RunFailed when it refuses a call.
    """
    where = os.environ.get("DOCKER_HOST") or "the default socket"
    try:
        client = docker.from_env(timeout=min(timeout_s, _HELLO_S), max_pool_size=CONNECTIONS)
    except DockerException as error:
        raise Unavailable(
            f"no Docker daemon answers at {where} ({_reason(error)}); start it, or set DOCKER_HOST to one that runs"
        ) from None
    client.api.timeout = timeout_s
    try:
        yield client
    except APIError as error:
        raise RunFailed(f"the Docker daemon refused: {error.explanation or error}") from None
    except (DockerException, requests.RequestException) as error:
        raise Unavailable(f"the Docker daemon at {where} was lost ({_reason(error)})") from None
    finally:
        client.close()


def _reason(error: BaseException) -> str:
    """The text of the innermost cause in the system or the connection."""
    text = str(error)
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
        if isinstance(error, OSError):
            text = error.strerror or str(error) or text
    return text
