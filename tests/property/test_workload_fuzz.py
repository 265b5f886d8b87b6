"""Whatever a trace or a spec holds: requests, or BadInput; never another exception."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stageline.errors import BadInput, StagelineError
from stageline.workload import open_workload
from tests.draining import drain, take

GOOD = {
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04,1,2\n",
    "burstgpt": b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API\n",
    "vidur": b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.1,10,20\n0.3,30,40\n",
    "mooncake": b'{"timestamp": 3, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n' * 2,
    "bailian": b'{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 1, "output_length": 1}\n' * 2,
    "stageline": b'{"arrival_ns": 17, "prompt_tokens": 3, "output_tokens": 4, "session": "a", "hash_ids": [1]}\n' * 2,
    "sharegpt": b'[{"conversations": [{"from": "human", "value": "a\\"]"}, {"from": "gpt", "value": "b"}]}, {}]',
}
NASTY = [
    b"",
    b"\0",
    b'"',
    b"\\",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"1e999",
    b"9" * 5000,
    b"-1",
    b"NaN",
    b"[" * 3000,
    b",",
    b"\n",
    b"\r",
]


def consume(path: Path, *, skip: bool, sort: bool) -> None:
    with contextlib.suppress(BadInput):
        workload = open_workload(str(path), skip_bad_rows=skip, sort=sort)
        last_ns = 0
        while (now_ns := workload.next_arrival_ns()) is not None:
            request = take(workload)
            assert last_ns <= now_ns == request.arrival_ns
            assert request.prompt_tokens >= 1
            assert 1 <= request.output_tokens <= request.max_output_tokens
            last_ns = now_ns


fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@fuzzed
@given(data=st.binary(max_size=300), skip=st.booleans(), sort=st.booleans())
@example(data=b"[", skip=True, sort=False)
@example(data=b"{", skip=True, sort=False)
def test_random_bytes(tmp_path: Path, data: bytes, skip: bool, sort: bool) -> None:
    path = tmp_path / "t"
    path.write_bytes(data)
    consume(path, skip=skip, sort=sort)


@pytest.mark.parametrize("name", GOOD)
@fuzzed
@given(data=st.data())
def test_mutated_traces(tmp_path: Path, name: str, data: st.DataObject) -> None:
    text = GOOD[name]
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 12)))
        patch = data.draw(st.sampled_from(NASTY) | st.binary(max_size=8) | st.just(text[begin:end] * 2))
        text = text[:begin] + patch + text[end:]
    path = tmp_path / "t"
    path.write_bytes(text)
    consume(path, skip=data.draw(st.booleans()), sort=data.draw(st.booleans()))


@given(st.text(alphabet="poisngamclted:=,()/.0123456789rtuvfhk ", max_size=60))
@example("poisson:rate=4,input=lognormal(1,0)")
@example("poisson:rate=999999999999,input=lognormal(999999999999,10)")
def test_random_specs(text: str) -> None:
    for spec in (text, "poisson:rate=4," + text, "gamma:rate=4,cv=" + text, "closed:users=1," + text):
        with contextlib.suppress(StagelineError):
            workload = open_workload(spec, requests=5)
            drain(workload)
