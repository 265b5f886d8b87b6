"""What a run runs on, as reports see it: pools of replicas. A plan alone is one pool without a name.

Replicas are numbered through all pools in file order, and so are stages, each pool's once: `binding_stage` and
`busiest_stage` of a summary are such numbers.
"""

from collections.abc import Iterable, Iterator

import msgspec

from stageline.engine.fleet import Fleet, Pool, Role
from stageline.engine.settings import Scheduling
from stageline.engine.types import StageRecord
from stageline.plan.report import device_text
from stageline.plan.schema import Plan
from stageline.report.settings import Facts, plan_label, settings_in_force

SEVERAL = " + "  # between the names of what pools have of different kinds


class RunPool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool. `first_replica` and `first_stage` are its first numbers in the run."""

    name: str  # "": a plan alone
    plan: Plan
    role: Role = "both"
    scheduling: Scheduling | None = None  # None: that of the run
    first_replica: int = 0
    first_stage: int = 0

    @property
    def replicas(self) -> range:
        """The numbers of its replicas."""
        return range(self.first_replica, self.first_replica + self.plan.replicas)

    @property
    def credits(self) -> int:
        """Microbatches in flight per replica."""
        return (self.scheduling and self.scheduling.credits) or self.plan.defaults.credits

    def settings(self) -> Facts:
        """Its settings in force; empty for a plan alone, whose run knows them."""
        return {} if self.scheduling is None else settings_in_force(self.plan, self.scheduling)

    def label(self) -> str:
        """Replicas, name and division: "2 x prefill TP4"."""
        one = {name: value for name, value in self.plan.info.items() if name != "dp"}
        divided = plan_label(one).partition(",")[0]
        return " ".join(filter(None, (f"{self.plan.replicas} x", self.name, divided)))

    def records(self, stages: Iterable[StageRecord]) -> list[StageRecord]:
        """Its own of a run's stage records."""
        return [record for record in stages if record.replica in self.replicas]


class RunPools:
    """The pools of a run; `source` is the plan or the fleet itself."""

    def __init__(self, source: Plan | Fleet) -> None:
        self.source = source
        self.named = isinstance(source, Fleet)  # whether pools have names that people should see
        self.pools = tuple(_numbered(source.pools if isinstance(source, Fleet) else [source]))
        self._places = [place for place, pool in enumerate(self.pools) for _ in pool.replicas]

    def place(self, replica: int) -> int:
        """The place in the fleet of a replica's pool."""
        return self._places[replica]

    def of(self, replica: int) -> RunPool:
        """The pool of a replica."""
        return self.pools[self._places[replica]]

    @property
    def replicas(self) -> int:
        """Replicas of all pools."""
        return len(self._places)

    @property
    def plans(self) -> list[Plan]:
        """By replica."""
        return [self.pools[place].plan for place in self._places]

    @property
    def max_context_tokens(self) -> int | None:
        """The longest prompt and output; 0: no limit, None: the pools differ."""
        found = {pool.plan.max_context_tokens for pool in self.pools}
        return found.pop() if len(found) == 1 else None

    def replica_name(self, replica: int) -> str:
        """ "decode-1" for the second one of the pool decode; the number alone without names."""
        pool = self.of(replica)
        return f"{pool.name}-{replica - pool.first_replica}" if self.named else str(replica)

    def stage_number(self, record: StageRecord) -> int:
        """The number of its stage through all pools."""
        return self.of(record.replica).first_stage + record.stage

    def stage_name(self, number: int) -> str:
        """The name of a stage by its number through all pools: "stage-3", or "decode stage-0"."""
        pool = next(p for p in reversed(self.pools) if p.first_stage <= number)
        return f"{pool.name} stage-{number - pool.first_stage}".lstrip()

    def label(self) -> str:
        """ "2 x prefill TP4 + 2 x decode TP8"; "" for a plan alone."""
        return SEVERAL.join(pool.label() for pool in self.pools) if self.named else ""

    @property
    def models(self) -> list[str]:
        """The models in file order."""
        return list(dict.fromkeys(pool.plan.model for pool in self.pools))

    @property
    def device(self) -> str:
        """The kinds of devices in file order."""
        kinds = (kind for pool in self.pools for kind in device_text(pool.plan).split(SEVERAL))
        return SEVERAL.join(dict.fromkeys(kinds))

    def common_info(self) -> Facts:
        """How the plans were made, as far as all pools agree."""
        return common(pool.plan.info for pool in self.pools)

    def common_settings(self) -> Facts:
        """The settings in force, as far as all pools agree, and the router's own."""
        found = common(pool.settings() for pool in self.pools)
        if isinstance(self.source, Fleet):
            found["balance"] = self.source.balance
            found |= {"front_end_ns": self.source.front_end_ns} if self.source.front_end_ns else {}
        return found


def common(facts: Iterable[Facts]) -> Facts:
    """What all of them say alike."""
    first, *others = facts
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _numbered(sources: Iterable[Pool | Plan]) -> Iterator[RunPool]:
    replica = stage = 0
    for source in sources:
        own = RunPool(name="", plan=source) if isinstance(source, Plan) else _of_pool(source)
        pool = msgspec.structs.replace(own, first_replica=replica, first_stage=stage)
        replica, stage = replica + pool.plan.replicas, stage + len(pool.plan.stages)
        yield pool


def _of_pool(pool: Pool) -> RunPool:
    return RunPool(name=pool.name, plan=pool.plan, role=pool.role, scheduling=pool.scheduling)
