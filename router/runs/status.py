"""What the router is and what it is doing: the reply of Status, which the page shows, too."""

from collections.abc import Callable

import stageline
from router.api.generate import live_state
from router.cluster.stages import StageTable, metrics_of
from router.live.supervisor import LiveSupervisor
from router.runs.session import RunSession
from stageline.runtime.names import session_name
from stageline.v1 import router_pb2


class RouterStatus:
    """Of a router with these parts. `run`: the run in emulated time that is under way. `metrics`: the router's own."""

    def __init__(
        self, table: StageTable, supervisor: LiveSupervisor | None = None,
        metrics: Callable[[], bytes] = bytes,
    ) -> None:  # fmt: skip
        self._table, self._supervisor, self._metrics = table, supervisor, metrics
        self.run: RunSession | None = None

    async def reply(self, *, metrics: bool) -> router_pb2.StatusReply:
        """The state now, with the metrics of all servers if they are wanted."""
        run, deployment = self.run, self._table.deployment
        texts = await metrics_of(self._table) if metrics else {}
        return router_pb2.StatusReply(
            plan=deployment.document.canonical(),
            plan_digest=deployment.digest,
            session=session_name(run.id) if run else "",
            progress=run.progress() if run else None,
            stages=[
                router_pb2.StageState(
                    replica=s.replica,
                    stage=s.stage,
                    pool=s.pool,
                    name=s.plan.stages[s.stage].name,
                    address=s.address,
                    healthy=s.healthy,
                    metrics=texts.get((s.replica, s.stage), b""),
                )
                for s in self._table
            ],
            version=stageline.__version__,
            live=live_state(self._supervisor) if self._supervisor else None,
            metrics=self._metrics() if metrics else b"",
        )
