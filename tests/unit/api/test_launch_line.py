"""Launch lines as the documents of vLLM, SGLang and TensorRT-LLM have them: every flag is used, named, or refused."""

from typing import Any

import pytest

from stageline.api.launch_line import LaunchLine, parse_launch_line
from stageline.errors import BadInput

LINES: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    # docs.vllm.ai
    "vllm serve meta-llama/Llama-3.2-1B-Instruct \\\n  --dtype auto --max-model-len 4096 \\\n  --trust-remote-code": (
        "vllm-v1", "meta-llama/Llama-3.2-1B-Instruct", {"weights": "as-shipped", "max_model_len": 4096},
        ("--trust-remote-code",),
    ),
    "vllm serve meta-llama/Llama-3.2-1B-Instruct --data-parallel-size 4 --tensor-parallel-size 2": (
        "vllm-v1", "meta-llama/Llama-3.2-1B-Instruct", {"replicas": 4, "tensor_parallel": 2}, (),
    ),
    "vllm serve mistralai/Mistral-7B-v0.1 --gpu-memory-utilization 0.95 --max-model-len 8192": (
        "vllm-v1", "mistralai/Mistral-7B-v0.1", {"memory_share": 0.95, "max_model_len": 8192}, (),
    ),
    "vllm serve meta-llama/Llama-2-7b-hf --enable-prefix-caching": (
        "vllm-v1", "meta-llama/Llama-2-7b-hf", {"prefix_cache": True}, (),
    ),
    "vllm serve facebook/opt-125m --host 0.0.0.0 --port 8080": (
        "vllm-v1", "facebook/opt-125m", {}, ("--host", "--port"),
    ),
    "vllm serve meta-llama/Llama-405B-Instruct --tensor-parallel-size 16 --pipeline-parallel-size 1": (
        "vllm-v1", "meta-llama/Llama-405B-Instruct", {"tensor_parallel": 16, "stages": 1}, (),
    ),
    # docs.sglang.io
    "python -m sglang.launch_server --model-path meta-llama/Meta-Llama-3-8B-Instruct --tp 2": (
        "sglang", "meta-llama/Meta-Llama-3-8B-Instruct", {"tensor_parallel": 2}, (),
    ),
    "python -m sglang.launch_server --model-path meta-llama/Meta-Llama-3-8B-Instruct --mem-fraction-static 0.7": (
        "sglang", "meta-llama/Meta-Llama-3-8B-Instruct", {"memory_share": 0.7}, (),
    ),
    "python -m sglang.launch_server --model-path meta-llama/Meta-Llama-3-8B-Instruct --chunked-prefill-size 4096": (
        "sglang", "meta-llama/Meta-Llama-3-8B-Instruct", {"max_num_batched_tokens": 4096}, (),
    ),
    # the TensorRT-LLM documentation
    "trtllm-serve TinyLlama/TinyLlama-1.1B-Chat-v1.0": ("trtllm", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", {}, ()),
    "trtllm-serve m/x --host localhost --port 8000 --tp_size 2 --max_batch_size 128 --max_num_tokens 8192": (
        "trtllm", "m/x", {"tensor_parallel": 2, "max_num_seqs": 128, "max_num_batched_tokens": 8192},
        ("--host", "--port"),
    ),
    # CUDA graphs and asynchronous scheduling
    "vllm serve m/x --enforce-eager --no-async-scheduling": (
        "vllm-v1", "m/x", {"enforce_eager": True, "async_scheduling": False}, (),
    ),
    "vllm serve m/x --cuda-graph-sizes 64 --async-scheduling": (
        "vllm-v1", "m/x", {"cuda_graph_max": 64, "async_scheduling": True}, (),
    ),
    "vllm serve --cudagraph-capture-sizes 1 2 4 --max-model-len 10 m/x": (
        "vllm-v1", "m/x", {"cuda_graph_sizes": (1, 2, 4), "max_model_len": 10}, (),
    ),
    """vllm serve m/x --compilation-config '{"mode": 3, "cudagraph_capture_sizes": [1, 8]}'""": (
        "vllm-v1", "m/x", {"cuda_graph_sizes": (1, 8)}, (),
    ),
    "python -m sglang.launch_server --model-path m/x --cuda-graph-bs 1 2 16 --tp 2": (
        "sglang", "m/x", {"cuda_graph_sizes": (1, 2, 16), "tensor_parallel": 2}, (),
    ),
    "sglang serve --model-path m/x --disable-cuda-graph": ("sglang", "m/x", {"enforce_eager": True}, ()),
    # speculation
    """vllm serve m/x --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""": (
        "vllm-v1", "m/x", {"speculative_config": '{"method": "mtp", "num_speculative_tokens": 1}'}, (),
    ),
    "sglang serve --model m/x --speculative-algorithm EAGLE --speculative-num-steps 1 --speculative-eagle-topk 1": (
        "sglang", "m/x", {"speculative_config": '{"method": "mtp", "num_speculative_tokens": 1}'}, (),
    ),
    "sglang serve --model m/x --speculative-algorithm EAGLE3 --speculative-num-draft-tokens 4 "
    "--speculative-draft-model-path e/3": (
        "sglang", "m/x",
        {"speculative_config": '{"method": "eagle3", "num_speculative_tokens": 3, "model": "e/3"}'}, (),
    ),
    # wrappers: a container with an entry point of its own, a container with a command, runners, redirections
    'docker run --runtime nvidia --gpus all -v cache:/cache --env "HF_TOKEN=x" -p 8000:8000 --ipc=host '
    "vllm/vllm-openai:latest --model Qwen/Qwen3-0.6B --max-model-len 4096": (
        "vllm-v1", "Qwen/Qwen3-0.6B", {"max_model_len": 4096}, ("HF_TOKEN",),
    ),
    "docker run --gpus all --shm-size 32g -p 30000:30000 --ipc=host lmsysorg/sglang:latest python3 -m "
    "sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --host 0.0.0.0 --port 30000": (
        "sglang", "meta-llama/Llama-3.1-8B-Instruct", {}, ("--host", "--port"),
    ),
    "nohup uv run vllm serve m/x --served-model-name a b > log.txt 2>&1 &": (
        "vllm-v1", "m/x", {}, ("--served-model-name",),
    ),
    "mpirun -n 2 --allow-run-as-root trtllm-llmapi-launch trtllm-serve m/x --tp_size 2": (
        "trtllm", "m/x", {"tensor_parallel": 2}, (),
    ),
    "vllm serve m/x -pp 2": ("vllm-v1", "m/x", {"stages": 2, "layer_partition": "vllm"}, ()),
    "sglang serve --model-path m/x --pp 2": ("sglang", "m/x", {"stages": 2, "layer_partition": "sglang"}, ()),
    # lines of issues and recipes
    "VLLM_PP_LAYER_PARTITION=16,32 CUDA_DEVICE_ORDER=PCI_BUS_ID vllm serve m/x --gpu-memory-utilization 0.9 -pp 2": (
        "vllm-v1", "m/x", {"layer_partition": "16,32", "memory_share": 0.9, "stages": 2}, ("CUDA_DEVICE_ORDER",),
    ),
    "vllm serve m/x --tensor_parallel 2 --max_num_batched_tokens 64000 --enable_prefix_caching --swap-space 16": (
        "vllm-v1", "m/x", {"tensor_parallel": 2, "max_num_batched_tokens": 64_000, "prefix_cache": True},
        ("--swap-space",),
    ),
    "vllm serve m/x -dp 8 -ep --enable-eplb --eplb-config '{\"num_redundant_experts\":32}' --all2all-backend "
    "deepep_low_latency --enable-dbo": (
        "vllm-v1", "m/x", {"replicas": 8, "all_experts": True, "redundant_experts": 32, "overlap": True},
        ("--enable-eplb", "--all2all-backend"),
    ),
    "vllm serve m/x --limit-mm-per-prompt.image 0 --disable-hybrid-kv-cache-manager": (
        "vllm-v1", "m/x", {"whole_kv": True}, (),
    ),
    "python -m sglang.launch_server --model m/x --tp 8 --mem-frac 0.9": (
        "sglang", "m/x", {"tensor_parallel": 8, "memory_share": 0.9}, (),
    ),
    "python -m sglang.launch_server --model m/x --tp 16 --dp 8 --enable-dp-attention --moe-a2a-backend deepep "
    "--chunked-prefill-size 65536 --max-running-requests 2048": (
        "sglang", "m/x",
        {
            "tensor_parallel": 2, "replicas": 8, "all_experts": True, "max_num_batched_tokens": 8192,
            "max_num_seqs": 256,
        },
        (),
    ),
    "SGLANG_PP_LAYER_PARTITION=20,12 python -m sglang.launch_server --model m/x --pp-size 2": (
        "sglang", "m/x", {"layer_partition": "20,12", "stages": 2}, (),
    ),
    "trtllm-serve m/x --kv_cache_free_gpu_memory_fraction 0.85 --max_seq_len 8192 --backend pytorch": (
        "trtllm", "m/x", {"activations": "free", "memory_share": 0.85, "max_model_len": 8192}, ("--backend",),
    ),
    "export VLLM_USE_V1=1 && podman run --device nvidia.com/gpu=all docker.io/vllm/vllm-openai:v0.11.0 m/x -tp 2": (
        "vllm-v1", "m/x", {"tensor_parallel": 2}, (),
    ),
    "trtllm-serve m/x --pp_size 2 --cluster_size 1 --gpus_per_node 8 --max_beam_width 1": (
        "trtllm", "m/x", {"stages": 2, "layer_partition": "trtllm"}, ("--cluster-size", "--gpus-per-node"),
    ),
    # fields of JSON one by one, optimisation levels, overrides of the config
    "vllm serve m/x --speculative-config.method mtp --speculative-config.num_speculative_tokens=2": (
        "vllm-v1", "m/x", {"speculative_config": '{"method": "mtp", "num_speculative_tokens": 2}'}, (),
    ),
    "vllm serve m/x -cc.cudagraph_capture_sizes+ 1 -cc.cudagraph_capture_sizes+ 8 -O3 --limit-mm-per-prompt.image 2": (
        "vllm-v1", "m/x", {"cuda_graph_sizes": (1, 8)}, (),
    ),
    "vllm serve m/x -O.cudagraph_mode NONE --eplb-config.num_redundant_experts 4": (
        "vllm-v1", "m/x", {"enforce_eager": True, "redundant_experts": 4}, (),
    ),
    "vllm serve m/x --limit-mm-per-prompt image=0,video=0": ("vllm-v1", "m/x", {"language_model_only": True}, ()),
    """vllm serve m/x --limit-mm-per-prompt '{"image": 0, "video": 0}'""": (
        "vllm-v1", "m/x", {"language_model_only": True}, (),
    ),
    "vllm serve m/x --language-model-only": ("vllm-v1", "m/x", {"language_model_only": True}, ()),
    # recipes: docs.vllm.ai/projects/recipes, docs.sglang.io/cookbook, TensorRT-LLM's deployment guides, model cards
    "vllm serve zai-org/GLM-4.7-FP8 --tensor-parallel-size 4 --speculative-config.method mtp "
    "--speculative-config.num_speculative_tokens 1 --tool-call-parser glm47 --reasoning-parser glm45 "
    "--enable-auto-tool-choice --served-model-name glm-4.7-fp8": (
        "vllm-v1", "zai-org/GLM-4.7-FP8",
        {"tensor_parallel": 4, "speculative_config": '{"method": "mtp", "num_speculative_tokens": 1}'},
        ("--tool-call-parser", "--reasoning-parser", "--enable-auto-tool-choice", "--served-model-name"),
    ),
    "vllm serve m/x --tensor-parallel-size 8 --mm-encoder-tp-mode data --enable-expert-parallel --async-scheduling "
    """--media-io-kwargs '{"video": {"num_frames": -1}}' --host 0.0.0.0""": (
        "vllm-v1", "m/x",
        {"tensor_parallel": 8, "tower_mode": "data", "all_experts": True, "async_scheduling": True},
        ("--media-io-kwargs", "--host"),
    ),
    "vllm serve m/x --enable-expert-parallel --data-parallel-size 8 --kv-cache-dtype fp8_e4m3 --block-size 64 "
    "--data-parallel-address 10.0.0.1 --api-server-count=8": (
        "vllm-v1", "m/x", {"all_experts": True, "replicas": 8, "kv_cache_dtype": "fp8", "block_tokens": 64},
        ("--data-parallel-address", "--api-server-count"),
    ),
    "vllm serve openai/gpt-oss-120b --async-scheduling --no-enable-prefix-caching --max-cudagraph-capture-size 2048 "
    "--max-num-batched-tokens 8192 --stream-interval 20 --tensor-parallel-size 4 --performance-mode balanced": (
        "vllm-v1", "openai/gpt-oss-120b",
        {
            "async_scheduling": True, "prefix_cache": False, "cuda_graph_max": 2048, "max_num_batched_tokens": 8192,
            "tensor_parallel": 4,
        },
        ("--stream-interval",),
    ),
    "vllm serve m/x --language-model-only --reasoning-parser qwen3 --mamba-ssm-cache-dtype float32": (
        "vllm-v1", "m/x", {"language_model_only": True, "state_dtype": "fp32"}, ("--reasoning-parser",),
    ),
    "vllm serve unsloth/tinyllama-bnb-4bit --quantization bitsandbytes --load-format bitsandbytes": (
        "vllm-v1", "unsloth/tinyllama-bnb-4bit", {"quantization": "bitsandbytes"}, ("--load-format",),
    ),
    "python -m sglang.launch_server --model-path Qwen/Qwen3.6-27B --port 8000 --tp-size 8 --mem-fraction-static 0.8 "
    "--context-length 262144 --reasoning-parser qwen3": (
        "sglang", "Qwen/Qwen3.6-27B", {"tensor_parallel": 8, "memory_share": 0.8, "max_model_len": 262_144},
        ("--port", "--reasoning-parser"),
    ),
    "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --dist-init-addr 10.0.0.1:5000 "
    "--nnodes 2 --node-rank 0 --trust-remote-code --quantization fp8 --kv-cache-dtype fp8_e5m2": (
        "sglang", "deepseek-ai/DeepSeek-R1",
        {"tensor_parallel": 16, "quantization": "fp8", "kv_cache_dtype": "fp8"},
        ("--dist-init-addr", "--nnodes", "--node-rank", "--trust-remote-code"),
    ),
    "sglang serve --model-path m/x --pp-size 4 --pp-async-batch-depth 2": (
        "sglang", "m/x", {"stages": 4, "credits": 6, "layer_partition": "sglang"}, (),
    ),
    "trtllm-serve deepseek-ai/DeepSeek-R1 --host localhost --port 8000 --backend pytorch --max_batch_size 161 "
    "--max_num_tokens 1160 --tp_size 8 --ep_size 8 --pp_size 1 --kv_cache_free_gpu_memory_fraction 0.95 "
    "--enable_chunked_prefill --reasoning_parser deepseek-r1": (
        "trtllm", "deepseek-ai/DeepSeek-R1",
        {
            "max_num_seqs": 161, "max_num_batched_tokens": 1160, "tensor_parallel": 8, "expert_parallel": 8,
            "activations": "free", "memory_share": 0.95,
        },
        ("--host", "--port", "--backend", "--reasoning-parser"),
    ),
    "vllm serve m/x -O 0": ("vllm-v1", "m/x", {"enforce_eager": True}, ()),
    """vllm serve m/x --rope-scaling '{"rope_type": "yarn", "factor": 4.0}' --max-model-len 131072""": (
        "vllm-v1", "m/x",
        {"hf_overrides": '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}', "max_model_len": 131_072}, (),
    ),
    "vllm serve m/x --hf-overrides.rope-parameters.factor 2": (
        "vllm-v1", "m/x", {"hf_overrides": '{"rope_parameters": {"factor": 2}}'}, (),
    ),
    """sglang serve --model m/x --json-model-override-args '{"max_position_embeddings": 65536}'""": (
        "sglang", "m/x", {"hf_overrides": '{"max_position_embeddings": 65536}'}, (),
    ),
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve m/x --max-model-len 1000000": (
        "vllm-v1", "m/x", {"hf_overrides": '{"max_model_len": 1000000}', "max_model_len": 1_000_000}, (),
    ),
    # an environment before the command, underscores, `=` and vLLM's suffixes
    "NCCL_P2P_DISABLE=1 vllm serve m/x -tp=2 --enable_expert_parallel --max-num-seqs 8 --max-model-len=130k": (
        "vllm-v1", "m/x", {"tensor_parallel": 2, "all_experts": True, "max_num_seqs": 8, "max_model_len": 130_000},
        ("NCCL_P2P_DISABLE",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", LINES)
def test_lines_of_the_engines_documents(text: str) -> None:
    engine, model, keywords, unused = LINES[text]
    assert parse_launch_line(text) == LaunchLine(engine, model, {"stages": 1} | keywords, unused)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "vllm serve m --tensor-paralel-size 2",
            "not a flag .*did you mean --tensor-parallel-size",
        ),
        ("vllm serve", "names no model .*write it like 'vllm serve"),
        ("vllm serve a b", "names several models: a, b"),
        ("vllm serve m --cpu-offload-gb", "--cpu-offload-gb: not emulated: weights in host memory"),
        ("""vllm serve m --compilation-config '{"backend": "eager"}'""", "--compilation-config: backend: not emulated"),
        ("vllm serve m --compilation-config '{'", "--compilation-config: not JSON"),
        ("vllm serve m --cudagraph-capture-sizes 1 0", "--cudagraph-capture-sizes: not a positive whole number"),
        ("docker run vllm/vllm-openai", "names no model"),
        ("rocket launch", "begins with one of: vllm serve, python -m sglang.launch_server, trtllm-serve"),
        ("rocket vllm serve m", "not a launch line of a known serving engine"),
        ("vllm serve m -tp $TP", "--tensor-parallel-size: a variable of a shell .*put its value in its place"),
        ("vllm serve m --speculative-config.method", "--speculative-config.method: its value is missing"),
        ("vllm serve m --kv-transfer-config.kv_role kv_both", "--kv-transfer-config: not emulated"),
        ("vllm serve m --speculative-config.a 1 --speculative-config.a.b 1", "a has a value of its own"),
        ("vllm serve m --compilation-config.a 1 --compilation-config.a+ 1", "a has a value of its own"),
        ("vllm serve m --rope-scaling yarn", "--rope-scaling: not JSON"),
        ("vllm serve m --performance-mode throughput", "other limits and graph sizes than the engine's defaults"),
        ("vllm serve m --mm-encoder-tp-mode rows", "give weights or data"),
        ("vllm serve m --dbo-decode-token-threshold 32", "not emulated: the smallest batch that is split in two"),
        ("vllm serve m -dcp 4", "not emulated: decode context parallelism"),
        ("sglang serve --model m --torchao-config int4wo-128", "weights that torchao quantises at launch"),
        ("trtllm-serve m --enable_attention_dp", "not emulated: replicas of attention"),
        ("vllm serve m -O1", "--optimization-level: graphs for pieces of a step alone are not emulated"),
        ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=yes vllm serve m", "VLLM_ALLOW_LONG_MAX_MODEL_LEN: neither 0 nor 1"),
        ("vllm serve m --kv-transfer-config x", "--kv-transfer-config: not emulated: KV that other servers or stores"),
        (
            "vllm serve m --kv-cache-memory-bytes 1T",
            "--kv-cache-memory-bytes: not a whole number of bytes .*write it like 25G",
        ),
        ("vllm serve --config c.yaml", "--config: not emulated: settings in a file of its own"),
        ("VLLM_USE_V1=0 vllm serve m", "VLLM_USE_V1: the V0 engine is not emulated"),
        ("python -m sglang.launch_server --model m --chunked-prefill-size -1", "prefill without chunks"),
        (
            "python -m sglang.launch_server --model m --moe-dense-tp-size 1",
            "--moe-dense-tp-size: not emulated: dense FFNs",
        ),
        ("trtllm-serve m --max_beam_width 4", "--max-beam-width: beam search is not emulated"),
        ("vllm serve m --eplb-config 3", "not a JSON object with a number of num_redundant_experts"),
        ("vllm serve m --scheduling-policy priority", "--scheduling-policy: a setting of runs; give --queueing"),
        ("vllm serve m --max-num-seqs 0", "--max-num-seqs: not a positive whole number"),
        ("vllm serve m --max-num-seqs 9999999999999", "--max-num-seqs: too large"),
        ("vllm serve m --max-num-seqs", "--max-num-seqs: its value is missing"),
        ("vllm serve m --kv-cache-dtype turboquant_k8v4", "--kv-cache-dtype: not emulated; known: auto, bfloat16"),
        ("sglang serve --model m --speculative-num-steps 3", "--speculative-algorithm None: not emulated"),
        ("sglang serve --model m --speculative-algorithm EAGLE", "give --speculative-num-steps"),
        (
            "sglang serve --model m --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4",
            "a tree of drafts",
        ),
        (
            "python -m sglang.launch_server --model m --tp 8 --dp 8 --enable-dp-attention",
            "split over replicas of attention are not emulated; spread them: --ep-size 8",
        ),
        (
            "python -m sglang.launch_server --model m --tp 8 --dp 3 --enable-dp-attention --ep 8",
            "not a multiple of the 3",
        ),
        ("vllm serve 'm", "not a command line"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_launch_line(text)
