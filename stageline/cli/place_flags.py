"""The flags of `stageline run` that say where to run."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.api.execution import Cluster, EngineName
from stageline.cli.address import router_address
from stageline.cli.groups import CLUSTER
from stageline.cli.numbers import WHOLE
from stageline.cli.security_flags import SecurityFlags
from stageline.errors import BadInput, UsageError
from stageline.runtime import deadline

RETRIES, MAX_RETRIES = 3, 100


@Parameter(name="*", group=CLUSTER)
@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFlags:
    """In this process, on local servers, or on a cluster that runs already."""

    engine: Annotated[
        EngineName | None,
        Parameter(help="Run in this process (default) or on local servers, with the same result."),
    ] = None
    cluster: Annotated[
        str | None,
        Parameter(help="Run on the cluster whose router is at HOST:PORT (grpcs://HOST:PORT for TLS)."),
    ] = None
    retries: Annotated[
        int | None,
        WHOLE,
        Parameter(
            help="How often a run may be done again after a server's death, and compared with what is known of it. "
            f"Default: {RETRIES} with --engine cluster, 0 with --cluster.",
        ),
    ] = None
    stage_deadline: Annotated[
        str | None,
        Parameter(
            help="With --engine cluster: how long a stage may owe an answer before it counts as lost, such as 2s. "
            f"Default: {deadline.DEFAULT}."
        ),
    ] = None
    security: SecurityFlags = SecurityFlags()  # noqa: RUF009  (frozen)

    def target(self) -> Cluster | None:
        """The cluster; None: in this process. Raises UsageError or BadInput for flags that contradict each other."""
        self._check_deadline()
        if self.cluster is not None:
            router_address("--cluster", self.cluster)
            if self.engine == "inprocess":
                raise UsageError(f"--engine inprocess and --cluster {self.cluster} contradict each other: give one")
        elif self.engine != "cluster":
            self.security.refuse("a run in this process calls no server: add --cluster HOST:PORT or --engine cluster")
            if self.retries is not None:
                raise UsageError(
                    "--retries: a run in this process needs none: add --cluster HOST:PORT or --engine cluster"
                )
            return None
        if self.retries is not None and not 0 <= self.retries <= MAX_RETRIES:
            raise BadInput("--retries", self.retries, f"not between 0 and {MAX_RETRIES}", "give a number in that range")
        again = self.retries if self.retries is not None else 0 if self.cluster is not None else RETRIES
        return Cluster(
            address=self.cluster,
            tls=self.security.files(),
            api_key=self.security.api_key,
            retries=again,
            stage_deadline=self.stage_deadline or deadline.DEFAULT,
        )

    def _check_deadline(self) -> None:
        if self.stage_deadline is None:
            return
        if self.cluster is not None or self.engine != "cluster":
            where = "the router's own, which it is started with" if self.cluster is not None else "of no use"
            raise UsageError(f"--stage-deadline is {where} here: it belongs to --engine cluster")
        deadline.deadline_ns(self.stage_deadline)
