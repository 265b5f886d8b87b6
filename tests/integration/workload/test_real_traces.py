"""Public traces as published: row counts and means that their notes state."""

from pathlib import Path
from statistics import median

import pytest

from stageline.workload import open_workload
from tests.draining import drain


@pytest.mark.parametrize(
    ("name", "rows", "last_s", "prompts", "outputs"),
    [
        ("AzureLLMInferenceTrace_code_2023.csv", 8_819, 3_436, (2047.8, 1469, 7437), (27.9, 13, 1899)),
        ("AzureLLMInferenceTrace_conv_2023.csv", 19_366, 3_502, (1154.7, 1020, 14050), (211.1, 129, 1000)),
        ("mooncake_conversation_trace.jsonl", 12_031, 3_537, (12_035, None, 126_195), (343, None, None)),
    ],
)
def test_published_figures(
    shared_data: Path,
    name: str,
    rows: int,
    last_s: int,
    prompts: tuple[float, int | None, int | None],
    outputs: tuple[float, int | None, int | None],
) -> None:
    workload = open_workload(str(shared_data / "traces" / name))
    requests = drain(workload)
    assert (workload.counts.read, workload.counts.accepted, len(requests)) == (rows, rows, rows)
    assert [r.index for r in requests] == list(range(rows))
    assert requests[0].arrival_ns == 0
    assert requests[-1].arrival_ns / 1e9 == pytest.approx(last_s, abs=0.6)
    for values, (mean, middle, largest) in (
        ([r.prompt_tokens for r in requests], prompts),
        ([r.output_tokens for r in requests], outputs),
    ):
        assert sum(values) / rows == pytest.approx(mean, abs=0.5 if mean > 300 else 0.05)
        assert middle is None or median(values) == middle
        assert largest is None or max(values) == largest


def test_mooncake_hash_ids_are_whole(shared_data: Path) -> None:
    workload = open_workload(str(shared_data / "traces" / "mooncake_conversation_trace.jsonl"))
    seen: set[int] = set()
    blocks = hits = 0
    for request in drain(workload):
        assert len(request.hash_ids) == -(-request.prompt_tokens // workload.hash_block_tokens)
        blocks += len(request.hash_ids)
        hits += len(seen.intersection(request.hash_ids))
        seen.update(request.hash_ids)
    assert hits / blocks == pytest.approx(0.366, abs=0.0005)
