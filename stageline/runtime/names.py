"""How errors and logs name the router, its stages and its sessions."""

from hashlib import sha256

from stageline.plan.schema import Plan


def replica_name(replica: int, replicas: int, pool: str = "") -> str:
    """Such as "replica 3 (decode)", with the name of its pool if it has one; empty where there is only one replica."""
    text = f"replica {replica} ({pool})" if pool else f"replica {replica}"
    return text if replicas > 1 else ""


def stage_name(plan: Plan, stage: int, replica: str = "") -> str:
    """Such as "stage 3 (wafer-3)", and of which replica, if that has a name."""
    name = plan.stages[stage].name
    text = f"stage {stage} ({name})" if name else f"stage {stage}"
    return f"{text} of {replica}" if replica else text


def session_name(secret: str) -> str:
    """A session's name for logs, errors and Status. Its id admits to the stages, and travels with Open only."""
    return sha256(secret.encode()).hexdigest()[:12]


def upstream_name(plan: Plan, link: int, replica: str = "") -> str:
    """Who sends on a link of the replica of that name."""
    return "the router" if link == 0 else stage_name(plan, plan.visits[link - 1].stage, replica)


def downstream_name(plan: Plan, link: int, replica: str = "") -> str:
    """Who receives from a link of the replica of that name."""
    return "the router" if link == len(plan.visits) else stage_name(plan, plan.visits[link].stage, replica)
