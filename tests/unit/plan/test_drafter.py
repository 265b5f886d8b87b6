"""What drafts beside the last layers: weights against published sizes, KV, and the cost of its passes."""

import json

import msgspec
import pytest

from stageline.api.planning import plan_model
from stageline.api.running import run
from stageline.catalog.loader import Catalog
from stageline.cost.entries import Drafter, Gemm, LayerGroup, LmHead, Roofline
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.errors import BadInput, UsageError
from stageline.model.hf import import_config
from stageline.plan.drafter import eagle, mtp

SHELF = Catalog()
DEEPSEEK, LLAMA = SHELF.model("deepseek-v3").spec, SHELF.model("llama-3.1-8b").spec
MTP = '{"method": "mtp", "num_speculative_tokens": 1}'
EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 1, "vocab_size": 128256,
    "draft_vocab_size": 32000, "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip  # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, whose checkpoint has 0.85 GB

HEAD = LmHead(row_ns=1000.0, weights_ns=0.0)
PASS = LayerGroup(layers=1, overhead_ns=0.0, gemms=(Gemm(token_ns=1.0, weights_ns=0.0),))
ENTRY = Roofline(groups=(), drafter=Drafter(groups=(PASS,), head=HEAD))


def test_the_mtp_layer_of_deepseek_has_the_published_parameters() -> None:
    """DeepSeek-V3's README: 671B of the main model and 14B of the MTP module, which include 0.9B each of the shared
    embedding and head: 11.6B of its own.
    """
    draft = mtp(DEEPSEEK, 1)
    params = sum(t.params for layer in draft.layers() for t in layer.tensors(DEEPSEEK.hidden))
    assert params / 1e9 == pytest.approx(11.6, abs=0.1)


def test_an_eagle_3_head_has_the_size_of_its_checkpoint() -> None:
    head = import_config(json.dumps(EAGLE3).encode(), "config.json", "eagle3", None)
    one = plan_model("llama-3.1-8b", "h100-sxm").options.group
    assert eagle(LLAMA, head, "eagle3", 3).weight_bytes(one) / 1e9 == pytest.approx(0.85, abs=0.01)


def test_weights_and_kv_come_with_the_last_stage() -> None:
    plain, drafting = (
        plan_model("deepseek-v3", "h200", tensor_parallel=8, stages=2, speculative_config=config).plan
        for config in (None, MTP)
    )
    assert plain.stages[0] == drafting.stages[0]
    a, b = plain.stages[1], drafting.stages[1]
    assert b.weight_bytes - a.weight_bytes > 11.6e9
    each_layer = a.kv_block_bytes // len(a.layers)
    assert b.kv_block_bytes - a.kv_block_bytes == each_layer
    assert [bool(plain.costs[v.cost].drafter) for v in plain.visits] == [False, False]  # type: ignore[union-attr]
    assert [bool(drafting.costs[v.cost].drafter) for v in drafting.visits] == [False, True]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tokens", "ns"),
    [
        (1, 0),  # nobody drafts
        (2, 2 * 2 + 2 * 1000),  # one pass over both tokens of 2 sequences, one row each
        (4, 2 * 4 + 2 * 1000 + 2 * (2 + 2 * 1000)),  # and two of one token each
    ],
)
def test_passes_of_a_decode_step(tokens: int, ns: int) -> None:
    n = 2 * tokens
    totals = BatchTotals(decode_sequences=2, decode_tokens=n, decode_kv_tokens=n, decode_pairs=n, sampled=n)
    assert compile_cost(ENTRY).service_ns(totals) == max(ns, 1)


def test_prompts_pass_through_the_drafter_too() -> None:
    totals = BatchTotals(prefill_sequences=1, prefill_tokens=50, prefill_kv_tokens=50, prefill_pairs=50, sampled=1)
    assert compile_cost(ENTRY).service_ns(totals) == 50 + 1000
    no_row = msgspec.structs.replace(totals, sampled=0)
    assert compile_cost(ENTRY).service_ns(no_row) == 50


def test_a_run_drafts_as_its_plan_says_and_asks_for_the_acceptance() -> None:
    plan = plan_model("deepseek-v3", "h200", tensor_parallel=8, speculative_config=MTP)
    work = "closed:users=2,requests=4,input=64,output=32"
    with pytest.raises(UsageError, match=r"the plan drafts tokens.*give --acceptance"):
        run(plan, work)
    found = run(plan, work, acceptance_ppm=1_000_000).summary.speculation
    assert found is not None and found.drafted_tokens == found.accepted_tokens > 0
    assert run(plan, work, speculate=0).summary.speculation is None
    other = run(plan, work, serving_engine="sglang", acceptance_ppm=1_000_000).summary.speculation
    assert other is not None and other.drafted_tokens == found.drafted_tokens


def test_captured_sizes_hold_whole_steps() -> None:
    """vLLM rounds sizes up to multiples of 1 + drafts; SGLang's count sequences."""
    three = '{"method": "ngram", "num_speculative_tokens": 2}'

    def sizes(engine: str) -> tuple[int, ...]:
        plan = plan_model("llama-3.1-8b", "h100-sxm", serving_engine=engine, speculative_config=three).plan
        graphs = plan.costs[0].graphs  # type: ignore[union-attr]
        assert graphs
        return graphs.sizes

    assert sizes("vllm-v1")[:4] == (3, 6, 9, 18)
    assert sizes("sglang")[:4] == (3, 6, 12, 24)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"method": "mtp"}', "num_speculative_tokens: not between 1 and 64"),
        ('{"method": "mtp", "num_speculative_tokens": true}', "num_speculative_tokens: not between 1 and 64"),
        (MTP, "llama-3.1-8b has no MTP layer"),
        ('{"method": "medusa", "num_speculative_tokens": 1}', "method: not emulated.*known: mtp"),
        ('{"method": "eagle", "num_speculative_tokens": 1}', "model: eagle drafts with a model of its own"),
        ('{"model": "llama-2-13b", "num_speculative_tokens": 1}', "vocabulary has 32,000 tokens"),
        ('{"method": "eagle", "model": "llama-3.1-70b", "num_speculative_tokens": 1}', "hidden size is 8,192"),
        ('{"method": "ngram", "num_speculative_tokens": 1, "quantization": "fp8"}', "quantization: not emulated"),
    ],
)
def test_what_cannot_draft_is_refused_by_name(config: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        plan_model("llama-3.1-8b", "h100-sxm", speculative_config=config)


def test_a_draft_model_of_the_catalogue() -> None:
    """All of its 8.03B parameters, in bf16."""
    config = '{"model": "llama-3.1-8b", "num_speculative_tokens": 5}'
    plain, drafting = (
        plan_model("llama-3.1-70b", "h200", tensor_parallel=2, speculative_config=c).plan for c in (None, config)
    )
    more = drafting.stages[0].weight_bytes - plain.stages[0].weight_bytes
    assert more / 1e9 == pytest.approx(16.06, abs=0.01)
