"""Whether an image holds the Stageline of the command that starts its containers."""

import docker
from docker.errors import APIError, ContainerError

from stageline.runtime.sources import sources

_ASK = ("python", "-m", "stageline.runtime.sources")


def stale_image(client: docker.DockerClient, name: str, image_id: str) -> str:
    """Why an image may not fit this command, with the way out; empty: it holds the same sources, or can't be asked.

    Starts one container, which is removed again.
    """
    try:
        said = client.containers.run(
            image_id, list(_ASK), entrypoint=[], remove=True, network_mode="none", read_only=True
        )
    except ContainerError as error:
        if b"No module named" not in (error.stderr or b""):
            return ""
        said = b""  # of a time before it could be asked
    except APIError:
        return ""
    theirs, ours = said.decode(errors="replace").strip(), sources()
    if theirs == ours:
        return ""
    return (
        f"image {name} holds another Stageline (sources {theirs or 'of an earlier version'}) than this command "
        f"({ours}); rebuild it in the checkout that this command is from: docker build -f deploy/Dockerfile -t {name} ."
    )
