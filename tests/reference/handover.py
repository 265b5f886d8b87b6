"""Rule 11: a request is prefilled at one replica and decoded at another; its KV travels in between."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stageline.plan.schema import Plan
from tests.reference import groups, kv, queueing, sharing
from tests.reference.engine import BINDING, END, LANDING
from tests.reference.fleet_replica import FleetReplica, Journey, Transfer
from tests.reference.ledger import blocks_of
from tests.reference.link import serialisation_ns
from tests.reference.sequence import Member, Microbatch, Sequence

if TYPE_CHECKING:
    from tests.reference.fleet import FleetEngine


# ---- at the replica that prefills


def chunk_returned(engine: "FleetEngine", replica: FleetReplica, microbatch: Microbatch, position: int) -> None:
    """A chunk is back at a prefill replica."""
    member = microbatch.members[position]
    journey = engine.book.journeys[member.sequence.index]
    if not member.samples:
        send_chunk(engine, journey, member)
        return
    sequence = member.sequence
    sequence.generated = 1
    if engine.first_token_counts:
        sequence.tokens_ns.append(engine.now_ns)
        if journey.request.output_tokens == 1:
            finish_prefill(engine, replica, journey)
            return
    replica.running.remove(sequence)
    replica.pinned.append(sequence)
    engine.left(replica)
    if journey.second is None:
        engine.book.move(sequence.index, "prefilled", replica.index)
        engine.post((engine.now_ns, BINDING, replica.index, microbatch.number, position), sequence)
    else:
        journey.second.generated = sequence.generated if engine.first_token_counts else 0
        depart(engine, journey)


def send_chunk(engine: "FleetEngine", journey: Journey, member: Member) -> None:
    """A streamed hand-over sends what this chunk has added, in whole blocks; its KV stays until all is sent."""
    if not engine.fleet.streamed or journey.second is None:
        return
    written_tokens = member.written_before + member.tokens
    size_bytes = kv_bytes(engine, journey, written_tokens) - sent_bytes(journey)
    if size_bytes > 0:
        member.sequence.fixed = True
        book(engine, journey, size_bytes, last=False)


def finish_prefill(engine: "FleetEngine", replica: FleetReplica, journey: Journey) -> None:
    """Its only token came with the prefill: it is done; what is booked of its KV still travels."""
    assert journey.first is not None
    journey.ended_ns = engine.now_ns
    engine.book.move(journey.request.index, "finish", replica.index)
    let_source_go(engine, journey)
    if journey.second is not None and not journey.landings_due:
        give_back(engine, journey)
    engine.ended(journey)


def let_source_go(engine: "FleetEngine", journey: Journey) -> None:
    """The prefill part is over; its KV stays pinned as long as bytes of it are booked."""
    sequence = journey.first
    assert sequence is not None
    replica = engine.fleet_replicas[sequence.replica]
    if journey.ends_due:
        replica.running.remove(sequence)
        replica.pinned.append(sequence)
    else:
        replica.remove(sequence)
    engine.left(replica)
    engine.wake(replica)


def give_back(engine: "FleetEngine", journey: Journey) -> None:
    """What the decode replica has for it, be it a place in the queue, a reservation, or KV that has landed."""
    assert journey.second is not None
    replica = engine.fleet_replicas[journey.second.replica]
    replica.remove(journey.second)
    engine.wake(replica)


# ---- at the replica that decodes


def bind(engine: "FleetEngine", source: Sequence) -> None:
    """Source-first: the prefill is over, and a decode replica is chosen."""
    journey = engine.book.journeys[source.index]
    replica = engine.routes.for_handover(journey.request)
    engine.book.move(source.index, "bind", replica.index)
    join_for_handover(engine, journey, replica, generated=source.generated if engine.first_token_counts else 0)


def join_for_handover(engine: "FleetEngine", journey: Journey, replica: FleetReplica, generated: int) -> None:
    """Into the queue of the replica that is to decode."""
    journey.second = Sequence(journey.request, 0, replica.index, generated=generated, awaited=True)
    engine.join(replica, journey.second)


def admit(engine: "FleetEngine", replica: FleetReplica) -> None:
    """All hand-overs at the head of the queue for which there is room."""
    while any(head.awaited and admit_one(engine, replica, head) for head in heads(replica)):
        pass


def heads(replica: FleetReplica) -> Iterator[Sequence]:
    """Whose turn it is; virtual engines have a queue each."""
    waiting = queueing.order(replica)
    if replica.scheduling.batching not in groups.VIRTUAL:
        yield from waiting[:1]
        return
    for engine in range(groups.slots(replica)):
        yield from [s for s in waiting if s.slot == engine][:1]


def admit_one(engine: "FleetEngine", replica: FleetReplica, sequence: Sequence) -> bool:
    """Take its room, if there is enough; then its KV may come, or its prefill may begin."""
    journey = engine.book.journeys[sequence.index]
    prompt_tokens = sequence.request.prompt_tokens
    held_tokens = kv.admission_tokens(replica.scheduling, sequence.request, prompt_tokens)
    find_cached(engine, replica, sequence)
    if not sharing.find_room(replica, sequence, held_tokens):
        sharing.forget(replica, sequence)
        return False
    replica.hold(sequence, held_tokens)
    replica.queue.remove(sequence)
    replica.running.append(sequence)
    replica.grant(sequence)
    sequence.fixed = True
    sequence.written_tokens = prompt_tokens if engine.first_token_counts else prompt_tokens - 1
    sequence.number = replica.admissions
    replica.admissions += 1
    sequence.admitted_ns = engine.now_ns
    sequence.cached_tokens = sequence.shared * replica.cache.block_tokens if replica.cache is not None else None
    if replica.scheduling.batching in groups.SLOTTED:
        sequence.slot = emptiest_slot(replica)
    if engine.source_first:
        depart(engine, journey)
    else:
        assert journey.first is not None
        engine.book.move(sequence.index, "reserve", replica.index)
        engine.join(engine.fleet_replicas[journey.first.replica], journey.first)
    return True


def find_cached(engine: "FleetEngine", replica: FleetReplica, sequence: Sequence) -> None:
    """Blocks of the prompt that need not travel as they are here; of no interest where all travels."""
    cache, request = replica.cache, sequence.request
    if cache is not None and engine.fleet.transfer == "missing":
        ids = cache.identities(request)
        for n in range(1, min(len(ids), request.prompt_tokens // cache.block_tokens) + 1):
            if ids[:n] not in cache.held:
                break
            sequence.shared = n
        cache.hold(ids, sequence.shared)
    replica.mirror_cache(sequence)


def emptiest_slot(replica: FleetReplica) -> int:
    """The slot with the fewest running sequences, the first of equals."""
    running = [sum(s.slot == slot for s in replica.running) for slot in range(groups.slots(replica))]
    return running.index(min(running))


# ---- between them


def depart(engine: "FleetEngine", journey: Journey) -> None:
    """All that has not been sent goes, and states with it."""
    assert journey.second is not None
    engine.book.move(journey.request.index, "depart", journey.second.replica)
    whole_bytes = kv_bytes(engine, journey, journey.request.prompt_tokens) + state_bytes(engine, journey)
    book(engine, journey, whole_bytes - sent_bytes(journey), last=True)


def sent_bytes(journey: Journey) -> int:
    """What is booked already."""
    return sum(transfer.size_bytes for transfer in journey.transfers)


def kv_bytes(engine: "FleetEngine", journey: Journey, tokens: int) -> int:
    """Of the first `tokens` tokens, in blocks of all stages of the source, less what the destination has cached."""
    assert journey.first is not None and journey.second is not None
    plan = engine.fleet_replicas[journey.first.replica].plan
    blocks = blocks_of(tokens, plan.block_tokens)
    missing = max(0, blocks - cached_blocks(plan, journey.second))
    return sum(missing * s.kv_block_bytes + window_bytes(plan, i, blocks) for i, s in enumerate(plan.stages))


def cached_blocks(plan: Plan, sequence: Sequence) -> int:
    """Blocks of the source all of whose tokens the destination found in its cache at the admission."""
    return (sequence.cached_tokens or 0) // plan.block_tokens


def window_bytes(plan: Plan, stage: int, blocks: int) -> int:
    """What the sliding windows of a stage keep of so many blocks."""
    return sum(w.block_bytes * min(blocks, w.most_blocks) for w in plan.stages[stage].kv_windows or ())


def state_bytes(engine: "FleetEngine", journey: Journey) -> int:
    """Of all stages of the source."""
    assert journey.first is not None
    return sum(stage.state_bytes for stage in engine.fleet_replicas[journey.first.replica].plan.stages)


def book(engine: "FleetEngine", journey: Journey, size_bytes: int, *, last: bool) -> None:
    """Take both ports, one after all that was booked before."""
    assert journey.first is not None and journey.second is not None
    source, destination = (engine.fleet_replicas[part.replica] for part in (journey.first, journey.second))
    ports = source.pool.port, destination.pool.port
    bytes_per_s = min(ports[0].egress_bytes_per_s, ports[1].ingress_bytes_per_s)
    start_ns = max(engine.now_ns, source.egress_free_ns, destination.ingress_free_ns)
    end_ns = start_ns + max(1, serialisation_ns(size_bytes, bytes_per_s))
    source.egress_free_ns = destination.ingress_free_ns = end_ns
    landed_ns = end_ns + max(port.latency_ns for port in ports)
    number = engine.next_booking()
    transfer = Transfer(
        number, journey.request.index, source.index, destination.index, size_bytes, start_ns, end_ns, landed_ns, last
    )
    engine.transfers.append(transfer)
    journey.transfers.append(transfer)
    journey.ends_due += 1
    journey.landings_due += 1
    engine.post((end_ns, END, number, 0, 0), transfer)
    engine.post((landed_ns, LANDING, number, 0, 0), transfer)


def end(engine: "FleetEngine", transfer: Transfer) -> None:
    """Both ports are done with it. With the last one the source lets the KV go."""
    journey = engine.book.journeys[transfer.index]
    journey.ends_due -= 1
    replica = engine.fleet_replicas[transfer.source]
    if not journey.ends_due and journey.first in replica.pinned:
        assert journey.first is not None
        replica.pinned.remove(journey.first)
        replica.drop(journey.first)
    engine.wake(replica)


def land(engine: "FleetEngine", transfer: Transfer) -> None:
    """KV is at its destination. With the last of it the sequence is ready to decode, and its blocks can be hit."""
    journey = engine.book.journeys[transfer.index]
    sequence, replica = journey.second, engine.fleet_replicas[transfer.destination]
    assert sequence is not None
    journey.landings_due -= 1
    engine.landed_bytes += transfer.size_bytes
    engine.wake(replica)
    if journey.ended_ns is not None or sequence.leaving:
        if not journey.landings_due:
            engine.close(journey)
        return
    if transfer.last:
        engine.book.move(sequence.index, "land", replica.index)
        if not replica.own:
            replica.arrived_at_empty = True
        sequence.awaited = sequence.fixed = False
        sequence.ready = True
        cache_landed(replica, sequence)


def cache_landed(replica: FleetReplica, sequence: Sequence) -> None:
    """Its full blocks can be hit from now on; copies of what was there go back. States and windows are not kept."""
    if replica.cache is not None:
        ids = replica.cache.identities(sequence.request)
        full = min(len(ids), sequence.written_tokens // replica.cache.block_tokens)
        for n in range(sequence.shared + 1, full + 1):
            replica.cache.add(ids[:n])
            sequence.shared = n
        replica.mirror_cache(sequence)
    replica.grant(sequence)
