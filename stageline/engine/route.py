"""The route of a plan: visits and their stages, minimum times (the lookahead of synchronisation), service models."""

from stageline.cost.service import ServiceModel, compile_cost
from stageline.engine.link import Link
from stageline.engine.types import NEVER
from stageline.plan.schema import Plan


class Route:
    """The visits of one replica in order. Shared by router, stages and engines; read-only."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.visits = len(plan.visits)
        self.max_context_tokens = plan.max_context_tokens or NEVER  # of prompt and output together
        self.stage_of = tuple(v.stage for v in plan.visits)
        self.inputs = tuple(
            tuple(v for v in range(self.visits) if self.stage_of[v] == s) for s in range(len(plan.stages))
        )
        models = [compile_cost(c) for c in plan.costs]
        self.models: tuple[ServiceModel, ...] = tuple(models[v.cost] for v in plan.visits)
        self.min_service_ns = tuple(v.min_service_ns for v in plan.visits)
        probes = [self.link(v, replica=0, seed=0) for v in range(self.visits + 1)]
        # step[v]: from the start of visit v to the arrival at the far end of link v + 1, at least.
        self.step_ns = tuple(
            self.min_service_ns[v] + probes[v + 1].min_serialisation_ns + probes[v + 1].latency_ns
            for v in range(self.visits)
        )
        self.trip_ns = sum(self.step_ns)  # from the arrival at visit 0 to the completion, at least
        self.revisits = any(len(i) > 1 for i in self.inputs)

    def link(self, index: int, replica: int, seed: int) -> Link:
        """A fresh link machine of this route."""
        return Link(self.plan.links[index], index, replica, seed, is_return=index == self.visits)

    def single_input(self, visit: int) -> bool:
        """Whether the stage of `visit` is visited only once: FIFO is then already time order."""
        return len(self.inputs[self.stage_of[visit]]) == 1
