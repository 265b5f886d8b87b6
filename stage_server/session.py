"""One session of a stage: its machine, its links, its end."""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any

from stageline.engine.route import Route
from stageline.engine.types import StageRecord
from stageline.errors import ProtocolError
from stageline.runtime.clock import LiveClock
from stageline.runtime.names import downstream_name, stage_name, upstream_name
from stageline.runtime.pacing import PacedLink, PacedMachine
from stageline.runtime.party import Machine, Party
from stageline.sync.frames import Frame
from stageline.sync.stage import StageNode
from stageline.v1 import flow_pb2, stage_pb2
from stageline.wire.channels import Dialer
from stageline.wire.frames import FrameEncoder, mode_of
from stageline.wire.inlink import InLink
from stageline.wire.outlink import OutLink, Peer
from stageline.wire.runs import account_of


class StageMachine:
    """A StageNode as a party drives it: its links' keys are their numbers."""

    def __init__(self, node: StageNode) -> None:
        self._node = node
        self.asked = node.asked
        self.promised_ns = node.promised_ns

    def receive(self, key: int, frame: Frame) -> None:
        """Takes a frame."""
        self._node.receive(frame)

    def poll(self) -> tuple[Iterable[tuple[int, Frame]], Iterable[tuple[int, int]]]:
        """Serves what is safe."""
        frames, asks = self._node.poll()
        return [(f.link, f) for f in frames], [(a.link, a.time_ns) for a in asks]


class StageSession:
    """From Open to Close. Built by the servicer once it knows that plan and stage are right."""

    def __init__(self, route: Route, request: stage_pb2.OpenRequest, dialer: Dialer) -> None:
        self.id, self.replica, self.index = request.session, request.replica, request.stage
        self.route, self.plan, self._dialer = route, route.plan, dialer
        self._clock = (
            LiveClock(request.clock.anchor_unix_ns, request.clock.dilation) if request.clock.dilation else None
        )
        # In wall time nothing may wait for company.
        self.node = StageNode(route, self.replica, self.index, request.seed, gathers=self._clock is None)
        self.paced = PacedMachine(StageMachine(self.node), self._follow_clock) if self._clock else None
        machine: Machine = self.paced or StageMachine(self.node)
        self.party = Party(stage_name(self.plan, self.replica, self.index), machine, after_turn=self._after_turn)
        self.final_record: StageRecord | None = None  # the final account, once it was asked for
        self.finished = asyncio.Event()  # the last frame of every incoming link has been applied
        self.in_links = {v: self._in_link(v) for v in self.node.visits}
        self.out_links = {v + 1: self._out_link(v + 1, request) for v in self.node.visits}
        if self._clock and self.paced:
            for number, link in self.out_links.items():
                paced = PacedLink(self._clock, link, self.plan.links[number].latency_ns)
                self.party.downstream[number] = self.paced.links[number] = paced
        self._cpu_ns = time.process_time_ns()

    async def connect(self) -> None:
        """Opens all outgoing links. Raises Unavailable for one whose far end does not answer."""
        async with asyncio.TaskGroup() as group:
            for link in self.out_links.values():
                group.create_task(link.open())

    def in_link(self, hello: flow_pb2.Hello) -> InLink:
        """The incoming link that a hello means. Raises ProtocolError when it does not end here."""
        link = self.in_links.get(hello.link)
        if link is None or hello.replica != self.replica:
            raise ProtocolError(f"link {hello.link} of replica {hello.replica} does not end at {self.party.name}")
        return link

    async def close(self) -> None:
        """Lets go of all links. Never raises."""
        self.party.close()
        if self.paced:
            self.paced.close()
        await asyncio.gather(*(link.close() for link in self.out_links.values()), return_exceptions=True)

    async def settled(self) -> None:
        """Returns when the last frames have been applied. Raises the session's error if that comes first."""
        waiting = asyncio.ensure_future(self.finished.wait())
        try:
            either: set[asyncio.Future[Any]] = {waiting, self.party.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        if self.party.error is not None:
            raise self.party.error

    def snapshot(self, start_ns: int, end_ns: int) -> stage_pb2.SnapshotReply:
        """Where the stage stands in the window [start, end)."""
        decoders = [link.decoder for link in self.in_links.values()]
        record = self.node.stage.record(start_ns, end_ns)
        if self.finished.is_set():
            self.final_record = record
        return stage_pb2.SnapshotReply(
            account=account_of(record),
            kv_used_bytes=self.node.stage.ledger.used_bytes,
            frames=sum(d.frames for d in decoders),
            promise_frames=sum(d.promise_frames for d in decoders),
            cpu_ns=time.process_time_ns() - self._cpu_ns,
        )

    def _follow_clock(self, link: int) -> None:
        """The clock slips where the router says so; frames carry it on."""
        if self._clock:
            self._clock.slip_to(self.in_links[link].decoder.slip_ns)

    def _after_turn(self) -> None:
        if self.node.finished:
            self.finished.set()

    def _in_link(self, link: int) -> InLink:
        return InLink(self.party, link, link, upstream_name(self.plan, self.replica, link))

    def _out_link(self, link: int, request: stage_pb2.OpenRequest) -> OutLink:
        addresses = {d.link: d.address for d in request.downstream}
        if link not in addresses:
            raise ProtocolError(f"{self.party.name}: no address for outgoing link {link}")
        returns = link == self.route.visits
        place = f"{downstream_name(self.plan, self.replica, link)} at {addresses[link]}"
        encoder = FrameEncoder(
            self.plan.links[link].bytes_per_token, returns=returns, mode=mode_of(request.payload_mode)
        )
        hello = flow_pb2.Hello(session=self.id, link=link, replica=self.replica)
        peer = Peer(addresses[link], place, returns)
        return OutLink(self.party, link, hello, to=peer, encoder=encoder, dialer=self._dialer)
