"""One session of a stage: its machine, its links, its end."""

import asyncio
import time

from stage_server.kv import KvStreams
from stageline.engine.route import Route
from stageline.engine.types import StageRecord
from stageline.errors import ProtocolError
from stageline.runtime.clock import live_clock
from stageline.runtime.names import downstream_name, replica_name, stage_name, upstream_name
from stageline.runtime.shell import SessionShell
from stageline.sync.stage import StageMachine
from stageline.v1 import flow_pb2, stage_pb2
from stageline.wire.channels import Dialer
from stageline.wire.frames import FrameEncoder, mode_of
from stageline.wire.inlink import InLink
from stageline.wire.outlink import OutLink, Peer
from stageline.wire.runs import account_of


class StageSession:
    """From Open to Close. Built by the servicer once it knows that plan and stage are right."""

    def __init__(self, route: Route, request: stage_pb2.OpenRequest, dialer: Dialer) -> None:
        self.id, self.replica, self.index, self.pool = request.session, request.replica, request.stage, request.pool
        self._replica_name = replica_name(request.replica, request.replicas, request.pool)
        self.route, self.plan, self._dialer = route, route.plan, dialer
        self.live = bool(request.clock.dilation)
        clock = live_clock(request.clock.anchor_unix_ns, request.clock.dilation) if self.live else None
        self.machine = StageMachine(route, self.replica, self.index, request.seed, clock=clock)
        self.shell = SessionShell(stage_name(self.plan, self.index, self._replica_name), self.machine)
        self.final_record: StageRecord | None = None  # the final account, once it was asked for
        self.in_links = {v: self._in_link(v) for v in self.machine.visits}
        self.out_links = {v + 1: self._out_link(v + 1, request) for v in self.machine.visits}
        self.kv = KvStreams(self.id, (self.replica, self.index), self.shell, mode_of(request.payload_mode), dialer)
        self._cpu_ns = time.process_time_ns()

    async def connect(self) -> None:
        """Open all outgoing links. Raises Unavailable for one whose far end does not answer."""
        async with asyncio.TaskGroup() as group:
            for link in self.out_links.values():
                group.create_task(link.open())

    def in_link(self, hello: flow_pb2.Hello) -> InLink:
        """The incoming link that a hello means. Raises ProtocolError when it does not end here."""
        link = self.in_links.get(hello.link)
        if link is None or hello.replica != self.replica:
            raise ProtocolError(f"link {hello.link} of replica {hello.replica} does not end at {self.shell.name}")
        return link

    async def close(self) -> None:
        """Close all links. Never raises."""
        self.shell.close()
        closing = [self.kv.close(), *(link.close() for link in self.out_links.values())]
        await asyncio.gather(*closing, return_exceptions=True)

    async def settled(self) -> None:
        """Return when the last frames have been applied. Raises the session's error if that comes first."""
        await self.shell.machine_done()
        if self.shell.error is not None:
            raise self.shell.error

    def snapshot(self, start_ns: int, end_ns: int) -> stage_pb2.SnapshotReply:
        """Where the stage stands in the window [start, end)."""
        decoders = [link.decoder for link in self.in_links.values()]
        record = self.machine.stage.record(start_ns, end_ns)
        if self.machine.done:
            self.final_record = record
        return stage_pb2.SnapshotReply(
            account=account_of(record),
            kv_used_bytes=self.machine.kv_used_bytes,
            frames=sum(d.frames for d in decoders),
            promise_frames=sum(d.promise_frames for d in decoders),
            cpu_ns=time.process_time_ns() - self._cpu_ns,
            kv_sent_bytes=self.kv.sent_bytes,
            kv_landed_bytes=self.kv.landed_bytes,
        )

    def _in_link(self, link: int) -> InLink:
        return InLink(self.shell, link, link, upstream_name(self.plan, link, self._replica_name))

    def _out_link(self, link: int, request: stage_pb2.OpenRequest) -> OutLink:
        addresses = {d.link: d.address for d in request.downstream}
        if link not in addresses:
            raise ProtocolError(f"{self.shell.name}: no address for outgoing link {link}")
        returns = link == self.route.visits
        place = f"{downstream_name(self.plan, link, self._replica_name)} at {addresses[link]}"
        encoder = FrameEncoder(
            self.plan.links[link].bytes_per_token, returns=returns, mode=mode_of(request.payload_mode)
        )
        hello = flow_pb2.Hello(session=self.id, link=link, replica=self.replica)
        peer = Peer(addresses[link], place, returns)
        return OutLink(self.shell, link, hello, to=peer, encoder=encoder, dialer=self._dialer)
