"""The page of one router."""

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

import stageline
from router.live.service import LiveService
from router.page.index import PageFacts, page_text
from router.page.watch import ClusterWatch
from stageline.engine.served import ServedFleet, ServedPool
from stageline.v1 import router_pb2


class Page:
    """`state` asks for the router's status with all metrics; `dashboards`: address of Grafana, or empty."""

    def __init__(
        self, service: LiveService, state: Callable[[], Awaitable[router_pb2.StatusReply]], *, dashboards: str,
        wants_key: bool,
    ) -> None:  # fmt: skip
        self._service, self._dashboards, self._wants_key = service, dashboards, wants_key
        self.watch = ClusterWatch(service.supervisor.deployment, state)

    def text(self, routes: Iterable[web.AbstractRoute]) -> str:
        """The document, with these paths."""
        supervisor = self._service.supervisor
        facts = PageFacts(
            deployment=supervisor.deployment,
            version=stageline.__version__,
            names=self._service.models.listed,
            dilation=self._service.dilation,
            scheduling=[scheduling_text(supervisor.fleet, pool) for pool in supervisor.fleet.pools],
            routes=[
                (r.method, r.resource.canonical, meaning_of(r)) for r in routes if r.method != "HEAD" and r.resource
            ],
            dashboards=self._dashboards,
            wants_key=self._wants_key,
        )
        return page_text(facts)


def meaning_of(route: web.AbstractRoute) -> str:
    """The first line of what a route's handler says of itself."""
    return (route.handler.__doc__ or "").strip().splitlines()[0]


def scheduling_text(fleet: ServedFleet, pool: ServedPool) -> str:
    """The settings that are in force in a pool, in one line."""
    scheduling, plan = pool.scheduling, pool.route.plan
    microbatch = scheduling.microbatch or plan.defaults.microbatch
    routing = f", replicas by {fleet.routing.balance}" if fleet.replicas > 1 else ""
    drafts = f", {scheduling.speculate} draft tokens" if scheduling.speculate else ""
    return (
        f"at most {microbatch:,} sequences a microbatch, {scheduling.credits or plan.defaults.credits} in flight, "
        f"{scheduling.batching} batches, queue {scheduling.queueing}, KV {scheduling.kv}, "
        f"prefix cache {'on' if scheduling.prefix_cache else 'off'}{routing}{drafts}"
    )
