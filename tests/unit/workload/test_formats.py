"""Each trace format: what is read from a good file, and how a bad row is reported."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.workload import open_workload
from tests.draining import drain

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST_OLD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_NEW = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n"

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> str:
        path = tmp_path / "trace"
        path.write_bytes(text.encode())
        return str(path)

    return _write


def brief(requests: list[Request]) -> list[tuple[int, int, int, int]]:
    return [(r.index, r.arrival_ns, r.prompt_tokens, r.output_tokens) for r in requests]


def test_azure_2023_keeps_seven_digits(write: Write) -> None:
    text = AZURE + "2023-11-16 23:59:59.9799600,4808,10\n2023-11-17 00:00:00.0319601,3180,8\n"
    workload = open_workload(write(text))
    assert workload.description == "azure:trace"
    assert brief(drain(workload)) == [(0, 0, 4808, 10), (1, 52_000_100, 3180, 8)]


def test_azure_2024_offsets(write: Write) -> None:
    text = AZURE + "2024-05-10 00:00:00.009930+00:00,1,2\n2024-05-10 01:00:00+01:00,3,4\n"
    workload = open_workload(write(text))
    assert brief(drain(workload)) == [(1, 0, 3, 4), (0, 9_930_000, 1, 2)]
    assert workload.counts.reordered == 1


@pytest.mark.parametrize(
    ("row", "column", "reason"),
    [
        ("2023-11-16 18:17:03,x,10", "ContextTokens", "not a whole number"),
        ("2023-11-16 18:17:03,-1,10", "ContextTokens", "not a whole number"),
        ("2023-11-16 18:17:03,1,99999999999", "GeneratedTokens", "more than"),
        ("2023-11-16 18:17:03,1," + "9" * 5000, "GeneratedTokens", "more than"),
        ("2023-11-16 18:17:03,1,", "GeneratedTokens", "not a whole number"),
        ("2023-02-30 18:17:03,1,1", "TIMESTAMP", "no such day"),
        ("2023-02-03 24:17:03,1,1", "TIMESTAMP", "not a time like"),
        ("nonsense,1,1", "TIMESTAMP", "not a time like"),
        ("2023-11-16 18:17:03,1", None, "2 cells where the header has 3"),
        ('2023-11-16 18:17:03,"1,2",3,4', None, "4 cells where"),
    ],
)
def test_a_bad_row_says_where_what_and_why(write: Write, row: str, column: str | None, reason: str) -> None:
    path = write(AZURE + "2023-11-16 18:17:00,1,1\n\n" + row + "\n")
    with pytest.raises(BadInput) as caught:
        drain(open_workload(path))
    message = str(caught.value)
    assert f"{path}:4" in message
    assert reason in message
    assert "--skip-bad-rows" in message
    if column:
        assert f"column {column}" in message


def test_skip_bad_rows_counts_them(write: Write) -> None:
    path = write(AZURE + "x,1,1\n2023-11-16 18:17:03,1,1\n1\n2023-11-16 18:17:04,2,2\n")
    workload = open_workload(path, skip_bad_rows=True)
    assert brief(drain(workload)) == [(0, 0, 1, 1), (1, 10**9, 2, 2)]
    assert (workload.counts.read, workload.counts.accepted, workload.counts.skipped_bad) == (4, 2, 2)


def test_zero_tokens_are_raised_and_counted(write: Write) -> None:
    workload = open_workload(write(AZURE + "2023-11-16 18:17:03,5,0\n2023-11-16 18:17:03,0,7\n"))
    assert brief(drain(workload)) == [(0, 0, 5, 1), (1, 0, 1, 7)]
    assert (workload.counts.output_raised, workload.counts.prompt_raised) == (1, 1)


@pytest.mark.parametrize(
    ("header", "row"),
    [(BURST_OLD, "{t},ChatGPT,{p},{r},9,API log"), (BURST_NEW, "{t},s-1,2.5,GPT-4,{p},{r},9,API log")],
)
def test_burstgpt_leaves_failed_requests_out(write: Write, header: str, row: str) -> None:
    rows = [("5", 472, 18), ("45.5", 1087, 0), ("118.000000001", 417, 276)]
    text = header + "".join(row.format(t=t, p=p, r=r) + "\n" for t, p, r in rows)
    workload = open_workload(write(text))
    requests = drain(workload)
    assert brief(requests) == [(0, 0, 472, 18), (1, 113_000_000_001, 417, 276)]
    assert workload.counts.left_out_failed == 1
    assert requests[0].conversation == ("s-1" if header is BURST_NEW else "")


def test_vidur_decimals_are_exact(write: Write) -> None:
    text = VIDUR + "0.1,10,20\n0.3,30.0,40\n1e1,5,6\n10.0000000005,7,8\n10.0000000015,9,9\n"
    times = [r.arrival_ns for r in drain(open_workload(write(text)))]
    assert times == [0, 200_000_000, 9_900_000_000, 9_900_000_000, 9_900_000_002]  # half-even beyond 1 ns


def test_llmservingsim_counts_from_when_the_server_queued(write: Write) -> None:
    row = '{"request_id": "b-%d", "input_toks": %d, "output_toks": 7, "arrival_time": 1.5, "queued_ts": %s}\n'
    workload = open_workload(write(row % (0, 20, "479748.340") + row % (1, 30, "479748.5")))
    assert workload.description == "llmservingsim:trace"
    assert brief(drain(workload)) == [(0, 0, 20, 7), (1, 160_000_000, 30, 7)]
    with pytest.raises(BadInput, match="input_toks"):
        drain(open_workload(write(row % (0, 20, "1.0") + '{"queued_ts": 2.0, "input_toks": "x", "output_toks": 1}\n')))


def test_mooncake_keeps_hash_ids(write: Write) -> None:
    rows = [
        {"timestamp": 3, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 3.25, "input_length": 6, "output_length": 1, "hash_ids": [7]},
    ]
    workload = open_workload(write("\n".join(map(json.dumps, rows))))
    requests = drain(workload)
    assert brief(requests) == [(0, 0, 600, 5), (1, 250_000, 6, 1)]
    assert [r.hash_ids for r in requests] == [(0, 1), (7,)]
    assert workload.hash_block_tokens == 512


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"timestamp": 1, "input_length": 1}', "column output_length: missing"),
        ('{"timestamp": "1", "input_length": 1, "output_length": 1}', "column timestamp: not a time"),
        ('{"timestamp": -1, "input_length": 1, "output_length": 1}', "column timestamp: not a time"),
        ('{"timestamp": 1, "input_length": null, "output_length": 1}', "column input_length: not a whole"),
        ('{"timestamp": 1, "input_length": 1.5, "output_length": 1}', "column input_length: not a whole"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1.5]}', "column hash_ids: not a list"),
        ('{"timestamp": 1, "input', "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
    ],
)
def test_bad_json_rows(write: Write, row: str, reason: str) -> None:
    path = write('{"timestamp": 0, "input_length": 1, "output_length": 1}\n' + row + "\n")
    with pytest.raises(BadInput, match=reason) as caught:
        drain(open_workload(path))
    assert f"{path}:2" in str(caught.value)


def test_bailian_conversations_are_named_after_the_root_of_the_chat(write: Write) -> None:
    rows = [
        {"chat_id": 9, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 1, "output_length": 1},
        {"chat_id": 10, "parent_chat_id": 9, "timestamp": 0.75, "input_length": 1, "output_length": 1},
        {
            "chat_id": 11,
            "parent_chat_id": 10,
            "timestamp": 0.75,
            "input_length": 1,
            "output_length": 1,
            "hash_ids": [4],
        },
        {"chat_id": 12, "parent_chat_id": 5, "timestamp": 1, "input_length": 1, "output_length": 1},
    ]
    workload = open_workload(write("\n".join(map(json.dumps, rows))))
    requests = drain(workload)
    assert workload.description == "bailian:trace"
    assert [r.conversation for r in requests] == ["9", "9", "9", "5"]
    assert [r.arrival_ns for r in requests] == [0, 250_000_000, 250_000_000, 500_000_000]
    assert workload.hash_block_tokens == 16


def test_native_times_are_kept(write: Write) -> None:
    rows = [
        {"arrival_ns": 17, "prompt_tokens": 3, "output_tokens": 4},
        {
            "arrival_ns": 18,
            "prompt_tokens": 3,
            "output_tokens": 4,
            "max_output_tokens": 8,
            "priority": -2,
            "session": "a",
            "hash_ids": [1],
        },
    ]
    first, second = drain(open_workload(write("\n".join(map(json.dumps, rows)))))
    assert (first.arrival_ns, first.max_output_tokens) == (17, 4)
    assert (second.max_output_tokens, second.priority, second.conversation, second.hash_ids) == (8, -2, "a", (1,))


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ('"priorty": 1', "column priorty: unknown member"),
        ('"max_output_tokens": 3', "column max_output_tokens: less than output_tokens"),
        ('"session": 4', "column session: not a string"),
        ('"priority": 1.5', "column priority: not an integer"),
    ],
)
def test_native_members_are_checked(write: Write, member: str, reason: str) -> None:
    path = write('{"arrival_ns": 1, "prompt_tokens": 3, "output_tokens": 4, ' + member + "}")
    with pytest.raises(BadInput, match=reason):
        open_workload(path)


def conversation(*values: str, first: str = "human") -> dict[str, object]:
    speakers = [first] + ["gpt", "human"] * len(values)
    return {"id": "x", "conversations": [{"from": s, "value": v} for s, v in zip(speakers, values, strict=False)]}


@pytest.mark.parametrize("indent", [None, 2])
def test_sharegpt_lengths(write: Write, indent: int | None) -> None:
    items = [
        conversation("12345", 'a "quoted" \\ ]} [{ back\\\\slash é'),
        conversation("no reply"),
        conversation("system says", "abcd", "", first="system"),
        conversation("x" * 200_000, "日" * 9),
    ]
    workload = open_workload(write(json.dumps(items, indent=indent, ensure_ascii=False)))
    second = -(-len('a "quoted" \\ ]} [{ back\\\\slash é') // 4)
    assert brief(drain(workload)) == [(0, 0, 2, second), (1, 0, 1, 1), (2, 0, 50_000, 3)]
    assert workload.counts.left_out_failed == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[{}, {", "no end"),
        ("[1, 2]", "not an array of objects"),
        ("[{} {}]", "not an array of objects"),
        ("[{}] x", "text after the end"),
        ("[{}][", "not an array of objects"),
    ],
)
def test_sharegpt_damaged_framing_is_not_skippable(write: Write, text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        drain(open_workload(write(text), skip_bad_rows=True))


def test_sharegpt_bad_items_are_skippable(write: Write) -> None:
    text = json.dumps([{"conversations": 4}, conversation("a", "b"), {}])
    with pytest.raises(BadInput, match=r"not a conversation.*\$\.conversations"):
        open_workload(write(text))
    workload = open_workload(write(text), skip_bad_rows=True)
    assert len(drain(workload)) == 1
    assert workload.counts.skipped_bad == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("   \n", "the file is empty"),
        ("a,b\n1,2\n", "known formats: azure"),
        ('{"a": 1}\n', "known formats"),
        (AZURE, r"no usable row \(0 rows read"),
    ],
)
def test_files_without_a_workload(write: Write, text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        open_workload(write(text))


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        open_workload(str(tmp_path / "none.csv"))
    with pytest.raises(BadInput, match="can't be read"):
        open_workload(str(tmp_path))


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(write: Write) -> None:
    text = "\ufeff" + (AZURE + "2023-11-16 18:17:03,1,2\n").replace("\n", "\r\n")
    assert brief(drain(open_workload(write(text)))) == [(0, 0, 1, 2)]
    items = json.dumps([conversation("a", "b")])
    assert len(drain(open_workload(write("\ufeff" + items)))) == 1


def test_native_rows_state_the_tokens_per_block(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    row = '{"arrival_ns":0,"prompt_tokens":9,"output_tokens":1,"hash_ids":[4,5],"hash_block_tokens": 8}\n'
    path.write_text(row + row)
    workload = open_workload(str(path))
    assert workload.hash_block_tokens == 8
    assert [r.hash_ids for r in drain(workload)] == [(4, 5)] * 2
    path.write_text(row + row.replace(": 8", ": 16"))
    with pytest.raises(BadInput, match=r"t.jsonl:2, column hash_block_tokens.*first row \(8\)"):
        drain(open_workload(str(path)))


def test_identities_fit_64_bits(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp":0,"input_length":9,"output_length":1,"hash_ids":[9223372036854775808]}\n')
    with pytest.raises(BadInput, match=r"hash_ids.*64-bit"):
        open_workload(str(path))


@pytest.mark.parametrize("spec", ["{pipe}", "closed:users=2,trace={pipe}", "/dev/zero"])
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path, spec: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="a pipe or a device, and a workload is read from its beginning more than once"):
        open_workload(spec.format(pipe=tmp_path / "pipe"))
