"""How errors and logs name the router, its stages and its sessions."""

from hashlib import sha256

from stageline.plan.schema import Plan


def stage_name(plan: Plan, replica: int, stage: int) -> str:
    """Such as "stage 3 (wafer-3)", with the replica where there are several."""
    name = plan.stages[stage].name
    text = f"stage {stage} ({name})" if name else f"stage {stage}"
    return f"{text} of replica {replica}" if plan.replicas > 1 else text


def session_name(secret: str) -> str:
    """A session's name for logs, errors and Status. Its id admits to the stages, and travels with Open only."""
    return sha256(secret.encode()).hexdigest()[:12]


def upstream_name(plan: Plan, replica: int, link: int) -> str:
    """Who sends on a link."""
    return "the router" if link == 0 else stage_name(plan, replica, plan.visits[link - 1].stage)


def downstream_name(plan: Plan, replica: int, link: int) -> str:
    """Who receives from a link."""
    return "the router" if link == len(plan.visits) else stage_name(plan, replica, plan.visits[link].stage)
