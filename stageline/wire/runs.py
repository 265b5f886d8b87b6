"""The messages between a run's client and the router <-> engine values."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

from msgspec.structs import asdict

from stageline.engine.types import (
    NEVER,
    Cancellation,
    HandOverRecord,
    LoadRecord,
    Observer,
    Outcome,
    PrefixStats,
    Request,
    RequestRecord,
    RunTotals,
    SpeculationStats,
    StageRecord,
    TierStats,
)
from stageline.errors import ProtocolError
from stageline.v1 import router_pb2, stage_pb2

BATCH_ROWS = 4096  # requests, records or tokens in one message
_MOMENTS = ("decode_replica", "reserved_ns", "start_ns", "end_ns", "landed_ns")  # of a hand-over, or None
_OUTCOMES: dict[str, Outcome] = {
    "finished": "finished",
    "refused": "refused",
    "cancelled": "cancelled",
    "failed": "failed",
    "incomplete": "incomplete",
}


def rows_of(events: Sequence[Request | Cancellation]) -> router_pb2.Rows:
    """Requests and cancellations as columns."""
    requests = [_as_row(event) for event in events]
    rows = router_pb2.Rows(
        index=[r.index for r in requests],
        cancels=_flags([isinstance(event, Cancellation) for event in events]),
        arrival_ns=[r.arrival_ns for r in requests],
        prompt_tokens=[r.prompt_tokens for r in requests],
        output_tokens=[r.output_tokens for r in requests],
        max_output_tokens=[r.max_output_tokens for r in requests],
    )
    if any(r.priority for r in requests):
        rows.priority.extend(r.priority for r in requests)
    if any(r.model for r in requests):
        rows.model.extend(r.model for r in requests)
    if any(r.conversation for r in requests):
        rows.session.extend(r.conversation for r in requests)
    if any(r.hash_ids for r in requests):
        rows.hash_count.extend(len(r.hash_ids) for r in requests)
        rows.hash_id.extend(h for r in requests for h in r.hash_ids)
    if any(r.output_hash_ids for r in requests):
        rows.output_hash_count.extend(len(r.output_hash_ids) for r in requests)
        rows.output_hash_id.extend(h for r in requests for h in r.output_hash_ids)
    return rows


def _as_row(event: Request | Cancellation) -> Request:
    """A request, or the row that stands for a cancellation."""
    if isinstance(event, Request):
        return event
    return Request(index=event.index, arrival_ns=event.at_ns, prompt_tokens=0, output_tokens=0, max_output_tokens=0)


def _flags(flags: list[bool]) -> list[int]:
    """A column of 0 and 1; empty when no flag is set."""
    return [int(flag) for flag in flags] if any(flags) else []


def requests_of(rows: router_pb2.Rows, first_index: int) -> list[Request | Cancellation]:
    """Columns as requests and cancellations; rows without an index column are numbered from `first_index`.

    Raises ProtocolError for columns that do not fit together.
    """
    count = len(rows.arrival_ns)
    columns = {
        name: _column(rows, name, count, default)
        for name, default in (
            ("arrival_ns", 0),
            ("prompt_tokens", 0),
            ("output_tokens", 0),
            ("max_output_tokens", 0),
            ("priority", 0),
            ("session", ""),
            ("hash_count", 0),
            ("cancels", 0),
            ("output_hash_count", 0),
            ("model", ""),
        )
    }
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "max_output_tokens"):
        if count and not 0 <= min(columns[name]) <= max(columns[name]) < NEVER:
            raise ProtocolError(f"rows from {first_index}: column {name} has a value out of range")
    ids = _per_row(rows.hash_id, columns["hash_count"], f"rows from {first_index}: hash_count")
    answers = _per_row(rows.output_hash_id, columns["output_hash_count"], f"rows from {first_index}: output_hash_count")
    indexes = list(rows.index) or range(first_index, first_index + count)
    if len(indexes) != count:
        raise ProtocolError(f"rows: column index has {len(indexes)} values for {count} requests")
    requests: list[Request | Cancellation] = []
    for index, row in zip(indexes, zip(*columns.values(), strict=True), strict=True):
        hash_ids, output_hash_ids = next(ids), next(answers)
        if row[7]:
            requests.append(Cancellation(index=index, at_ns=row[0]))
            continue
        requests.append(
            Request(
                index=index,
                arrival_ns=row[0],
                prompt_tokens=row[1],
                output_tokens=row[2],
                max_output_tokens=row[3],
                priority=row[4],
                conversation=row[5],
                hash_ids=hash_ids,
                output_hash_ids=output_hash_ids,
                model=row[9],
            )
        )
    return requests


def _per_row(ids: Iterable[int], counts: Sequence[int], place: str) -> Iterator[tuple[int, ...]]:
    """The identities of each row. Raises ProtocolError if `counts` do not add up to their number."""
    all_ids = tuple(ids)
    if sum(counts) != len(all_ids):
        raise ProtocolError(f"{place} does not add up to the number of hash ids")
    ends = list(accumulate(counts))
    return (all_ids[end - count : end] for count, end in zip(counts, ends, strict=True))


def _column(rows: router_pb2.Rows, name: str, count: int, default: int | str) -> list[int]:
    """One column, filled with `default` if it is left out."""
    column = list(getattr(rows, name)) or [default] * count
    if len(column) != count:
        raise ProtocolError(f"rows: column {name} has {len(column)} values for {count} requests")
    return column


def records_of(records: Iterable[RequestRecord]) -> router_pb2.Records:
    """Request records as columns; -1 stands for None."""
    message = router_pb2.Records()
    for r in records:
        message.index.append(r.index)
        message.replica.append(_or_minus(r.replica))
        message.arrival_ns.append(r.arrival_ns)
        message.admitted_ns.append(_or_minus(r.admitted_ns))
        message.first_token_ns.append(_or_minus(r.first_token_ns))
        message.last_token_ns.append(_or_minus(r.last_token_ns))
        message.prompt_tokens.append(r.prompt_tokens)
        message.output_tokens.append(r.output_tokens)
        message.preemptions.append(r.preemptions)
        message.outcome.append(r.outcome)
        message.cached_tokens.append(_or_minus(r.cached_tokens))
        if r.hand_over is not None:
            _add_hand_over(message.hand_overs, len(message.index) - 1, r.hand_over)
        if r.load is not None:
            _add_load(message.loads, len(message.index) - 1, r.load)
    if all(tokens < 0 for tokens in message.cached_tokens):
        message.ClearField("cached_tokens")
    return message


def _add_hand_over(columns: router_pb2.HandOvers, record: int, found: HandOverRecord) -> None:
    columns.record.append(record)
    columns.sent_bytes.append(found.sent_bytes)
    for name in _MOMENTS:
        getattr(columns, name).append(_or_minus(getattr(found, name)))


def _hand_overs(columns: router_pb2.HandOvers) -> dict[int, HandOverRecord]:
    """By position of their record."""
    moments = [getattr(columns, name) for name in _MOMENTS]
    rows = zip(columns.record, columns.sent_bytes, *moments, strict=True)
    return {
        record: HandOverRecord(sent_bytes=sent, **dict(zip(_MOMENTS, map(_or_none, values), strict=True)))
        for record, sent, *values in rows
    }


def _add_load(columns: router_pb2.Loads, record: int, found: LoadRecord) -> None:
    columns.record.append(record)
    for name in LoadRecord.__struct_fields__:
        getattr(columns, name).append(getattr(found, name))


def _loads(columns: router_pb2.Loads) -> dict[int, LoadRecord]:
    """By position of their record."""
    names = LoadRecord.__struct_fields__
    rows = zip(columns.record, *(getattr(columns, name) for name in names), strict=True)
    return {record: LoadRecord(**dict(zip(names, values, strict=True))) for record, *values in rows}


def request_records(message: router_pb2.Records) -> list[RequestRecord]:
    """Columns as request records."""
    columns = zip(
        message.index,
        message.replica,
        message.arrival_ns,
        message.admitted_ns,
        message.first_token_ns,
        message.last_token_ns,
        message.prompt_tokens,
        message.output_tokens,
        message.preemptions,
        message.outcome,
        message.cached_tokens or [-1] * len(message.index),
        strict=True,
    )
    hand_overs, loads = _hand_overs(message.hand_overs), _loads(message.loads)
    return [
        RequestRecord(
            index=row[0],
            replica=_or_none(row[1]),
            arrival_ns=row[2],
            admitted_ns=_or_none(row[3]),
            first_token_ns=_or_none(row[4]),
            last_token_ns=_or_none(row[5]),
            prompt_tokens=row[6],
            output_tokens=row[7],
            preemptions=row[8],
            outcome=_OUTCOMES[row[9]],
            cached_tokens=_or_none(row[10]),
            hand_over=hand_overs.get(position),
            load=loads.get(position),
        )
        for position, row in enumerate(columns)
    ]


def results_of(
    indexes: Sequence[int], times_ns: Sequence[int], records: Sequence[RequestRecord], tokens_before: Sequence[int]
) -> router_pb2.Results:
    """Tokens and records as one message; `tokens_before` counts the tokens before each record."""
    return router_pb2.Results(
        tokens=router_pb2.Tokens(index=indexes, now_ns=times_ns),
        records=records_of(records),
        tokens_before=tokens_before,
    )


def play(results: router_pb2.Results, observer: Observer, last_ns: dict[int, int]) -> None:
    """Notifies an observer of tokens and records in order.

    Mutates `last_ns`, the time of each request's previous token, which the caller keeps from message to message.
    """
    tokens = iter(zip(results.tokens.index, results.tokens.now_ns, strict=True))
    played = 0
    for record, before in zip(request_records(results.records), results.tokens_before, strict=True):
        _play_tokens(islice(tokens, before - played), observer, last_ns)
        played = before
        last_ns.pop(record.index, None)
        observer.request(record)
    _play_tokens(tokens, observer, last_ns)


def _play_tokens(tokens: Iterable[tuple[int, int]], observer: Observer, last_ns: dict[int, int]) -> None:
    for index, now_ns in tokens:
        observer.token(index, now_ns, last_ns.get(index))
        last_ns[index] = now_ns


def account_of(record: StageRecord) -> stage_pb2.StageAccount:
    """One stage's account as a message."""
    return stage_pb2.StageAccount(**{name: getattr(record, name) for name in StageRecord.__struct_fields__})


def stage_record(account: stage_pb2.StageAccount) -> StageRecord:
    """The account in a message."""
    values = {name: getattr(account, name) for name in StageRecord.__struct_fields__ if name != "idle_ns"}
    return StageRecord(idle_ns=dict(account.idle_ns), **values)


def ended_of(totals: RunTotals) -> router_pb2.Ended:
    """The last message of a run, without its cost."""
    return router_pb2.Ended(
        window_start_ns=totals.window_start_ns,
        window_end_ns=totals.window_end_ns,
        stages=[account_of(stage) for stage in totals.stages],
        requests=totals.requests,
        microbatches=totals.microbatches,
        stage_visits=totals.stage_visits,
        binding_stage=_or_minus(totals.binding_stage),
        prefix=[router_pb2.PrefixStats(**asdict(stats)) for stats in totals.prefix],
        speculation=[router_pb2.SpeculationStats(**asdict(stats)) for stats in totals.speculation],
        tiers=[router_pb2.TierStats(**asdict(stats) | {"replica": _or_minus(stats.replica)}) for stats in totals.tiers],
    )


def run_totals(ended: router_pb2.Ended) -> RunTotals:
    """The totals in the last message of a run."""
    return RunTotals(
        window_start_ns=ended.window_start_ns,
        window_end_ns=ended.window_end_ns,
        stages=tuple(stage_record(account) for account in ended.stages),
        requests=ended.requests,
        microbatches=ended.microbatches,
        stage_visits=ended.stage_visits,
        binding_stage=_or_none(ended.binding_stage),
        prefix=tuple(_prefix_stats(stats) for stats in ended.prefix),
        speculation=tuple(_speculation_stats(stats) for stats in ended.speculation),
        tiers=tuple(_tier_stats(stats) for stats in ended.tiers),
    )


def _prefix_stats(message: router_pb2.PrefixStats) -> PrefixStats:
    return PrefixStats(**{name: getattr(message, name) for name in PrefixStats.__struct_fields__})


def _speculation_stats(message: router_pb2.SpeculationStats) -> SpeculationStats:
    return SpeculationStats(**{name: getattr(message, name) for name in SpeculationStats.__struct_fields__})


def _tier_stats(message: router_pb2.TierStats) -> TierStats:
    values = {name: getattr(message, name) for name in TierStats.__struct_fields__}
    return TierStats(**values | {"replica": _or_none(message.replica)})


def _or_minus(value: int | None) -> int:
    return -1 if value is None else value


def _or_none(value: int) -> int | None:
    return None if value < 0 else value
