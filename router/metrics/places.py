"""How metrics label a stage."""

from stageline.runtime.deployment import Deployment

Place = tuple[str, str, str]  # stage, replica, pool; see `metric_names`


def place_of(deployment: Deployment, replica: int, stage: int) -> Place:
    """The labels of a stage."""
    return str(stage), str(replica), deployment.pool(replica)
