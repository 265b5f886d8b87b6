"""What the types of a plan can't say: that its parts fit together."""

from stageline.errors import BadInput
from stageline.plan.schema import FORMAT, Plan


def check_plan(plan: Plan, place: str = "plan") -> None:
    """Raises BadInput naming the place inside the plan (`$.visits[3].stage`), the value and what is wrong."""
    _Checker(plan, place).run()


class _Checker:
    def __init__(self, plan: Plan, place: str) -> None:
        self._plan, self._place = plan, place

    def run(self) -> None:
        plan = self._plan
        self._require(plan.format == FORMAT, "format", plan.format, f"not {FORMAT}")
        self._require(bool(plan.stages), "stages", None, "a plan needs a stage")
        self._require(bool(plan.visits), "visits", None, "a plan needs a visit")
        wanted = len(plan.visits) + 1
        self._require(len(plan.links) == wanted, "links", len(plan.links), f"not one more than visits ({wanted})")
        self._at_least(1, "", plan, "replicas", "block_tokens")
        self._at_least(1, "defaults.", plan.defaults, "microbatch", "credits", "batched_tokens")
        self._stages()
        self._visits()
        for i, link in enumerate(plan.links):
            self._at_least(0, f"links[{i}].", link, "latency_ns", "bytes_per_token", "jitter_ns")
            self._at_least(1, f"links[{i}].", link, "bytes_per_s")

    def _stages(self) -> None:
        for i, stage in enumerate(self._plan.stages):
            self._at_least(0, f"stages[{i}].", stage, "kv_budget_bytes", "kv_block_bytes", "state_bytes")

    def _visits(self) -> None:
        plan, visited = self._plan, set[int]()
        for i, visit in enumerate(plan.visits):
            stages, costs = len(plan.stages), len(plan.costs)
            self._require(0 <= visit.stage < stages, f"visits[{i}].stage", visit.stage, f"there are {stages} stages")
            self._require(0 <= visit.cost < costs, f"visits[{i}].cost", visit.cost, f"there are {costs} costs")
            self._at_least(1, f"visits[{i}].", visit, "min_service_ns")
            visited.add(visit.stage)
        for i in range(len(plan.stages)):
            self._require(i in visited, f"stages[{i}]", plan.stages[i].name, "no visit of the route goes there")

    def _at_least(self, least: int, prefix: str, value: object, *names: str) -> None:
        for name in names:
            number = getattr(value, name)
            self._require(number >= least, prefix + name, number, f"less than {least}")

    def _require(self, holds: bool, where: str, value: object, reason: str) -> None:
        if not holds:
            raise BadInput(f"{self._place}, $.{where}", value, reason, "make it again with stageline plan -o")
