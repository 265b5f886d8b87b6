"""All of the router's policies: a registry for each kind."""

from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import Scheduling

POLICIES = {registry.setting: registry for registry in (BATCHING, QUEUEING, KV, ROUTING)}  # by field of `Scheduling`


def check_policies(scheduling: Scheduling) -> None:
    """Raises UsageError for a policy that does not exist or lacks a setting that it needs; imports no user's class."""
    for registry in POLICIES.values():
        registry.check(scheduling)
