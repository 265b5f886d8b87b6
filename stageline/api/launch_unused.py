"""Flags of serving engines that change neither speed nor memory in the emulation: front end, logs, tokens, files.

Read in the engines' own documents, as `stageline.api.launch_flags`. A line that has them gets a word about it.
"""

COMMON_VALUES = frozenset(
    {
        "--api-key", "--api-server-count", "--backend", "--chat-template", "--chat-template-content-format",
        "--code-revision", "--config-format", "--data-parallel-address", "--data-parallel-rpc-port",
        "--data-parallel-size-local", "--data-parallel-start-rank", "--dist-init-addr", "--dist-timeout",
        "--distributed-executor-backend", "--download-dir", "--file-storage-path", "--generation-config", "--host",
        "--load-format", "--log-level", "--log-level-http", "--master-addr", "--master-port",
        "--middleware", "--model-loader-extra-config", "--nnodes", "--node-rank",
        "--override-generation-config", "--port", "--random-seed", "--reasoning-parser", "--revision", "--root-path",
        "--seed", "--served-model-name", "--ssl-ca-certs", "--ssl-certfile", "--ssl-keyfile", "--tokenizer",
        "--tokenizer-mode", "--tokenizer-path", "--tokenizer-revision", "--tool-call-parser", "--uvicorn-log-level",
        "--watchdog-timeout",
    }
)  # fmt: skip
COMMON_SWITCHES = frozenset(
    {
        "--disable-frontend-multiprocessing", "--disable-log-requests", "--disable-log-stats",
        "--disable-uvicorn-access-log", "--enable-auto-tool-choice", "--enable-log-requests", "--enable-metrics",
        "--enable-request-id-headers", "--enable-server-load-tracking", "--headless", "--no-enable-log-requests",
        "--skip-server-warmup", "--skip-tokenizer-init", "--trust-remote-code", "--worker-use-ray",
    }
)  # fmt: skip
VLLM_VALUES = COMMON_VALUES | {
    "--all2all-backend", "--allowed-headers", "--allowed-local-media-path", "--allowed-methods", "--allowed-origins",
    "--attention-backend", "--attention-config", "--collect-detailed-traces", "--convert", "--data-parallel-backend",
    "--default-chat-template-kwargs", "--default-mm-loras", "--expert-placement-strategy",
    "--guided-decoding-backend", "--ignore-patterns", "--interleave-mm-strings", "--kernel-config",
    "--kv-events-config", "--log-config-file", "--logits-processors", "--logprobs-mode", "--max-log-len",
    "--max-logprobs", "--max-parallel-loading-workers", "--max-seq-len-to-capture", "--media-io-kwargs",
    "--mm-processor-cache-gb", "--mm-processor-cache-type", "--mm-processor-kwargs", "--model-impl", "--moe-backend",
    "--otlp-traces-endpoint", "--prefix-caching-hash-algo", "--reasoning-config", "--reasoning-parser-plugin",
    "--renderer-num-workers", "--response-role", "--runner", "--show-hidden-metrics-for-version", "--stream-interval",
    "--structured-outputs-config", "--swap-space", "--task", "--tool-parser-plugin", "--tool-server", "--uds",
    "--use-gdn-prefill-backend", "--video-pruning-rate",
    "--allowed-media-domains", "--disable-access-log-for-endpoints", "--distributed-timeout-seconds",
    "--h11-max-header-count", "--h11-max-incomplete-event-size", "--hf-token", "--kv-cache-metrics-sample",
    "--linear-backend", "--mm-encoder-attn-backend", "--mm-shm-cache-max-object-size-mb", "--numa-bind-nodes",
    "--override-pooler-config", "--pooler-config", "--profiler-config", "--pt-load-map-location", "--rope-theta",
    "--safetensors-load-strategy", "--shutdown-timeout", "--ssl-ciphers",
    "--tokenizer-pool-size", "--tokenizer-pool-type", "--tokenizer-pool-extra-config",
}  # fmt: skip
VLLM_JSON = frozenset(  # those of them whose value is JSON
    {
        "--attention-config", "--default-chat-template-kwargs", "--default-mm-loras", "--kernel-config",
        "--kv-events-config", "--media-io-kwargs", "--mm-processor-kwargs",
        "--model-loader-extra-config", "--override-generation-config", "--reasoning-config",
        "--structured-outputs-config",
    }
)  # fmt: skip
VLLM_SWITCHES = COMMON_SWITCHES | {
    "--calculate-kv-scales", "--data-parallel-external-lb", "--data-parallel-hybrid-lb", "--disable-fastapi-docs",
    "--disable-hf-hub-auth", "--enable-eplb", "--enable-force-include-usage", "--enable-log-deltas",
    "--enable-log-outputs", "--enable-mfu-metrics", "--enable-multimodal-encoder-data-parallel",
    "--enable-offline-docs", "--enable-prompt-tokens-details", "--enable-reasoning", "--enable-sleep-mode",
    "--enable-ssl-refresh", "--enable-tokenizer-info-endpoint", "--exclude-tools-when-tool-choice-none",
    "--kv-cache-metrics", "--no-disable-uvicorn-access-log", "--ray-workers-use-nsight",
    "--return-tokens-as-token-ids", "--skip-mm-profiling", "--use-tqdm-on-load",
    "--disable-cascade-attn", "--disable-chunked-mm-input", "--disable-mm-preprocessor-cache",
    "--enable-flashinfer-autotune", "--enable-layerwise-nvtx-tracing", "--enable-logging-iteration-details",
    "--enable-mm-embeds", "--enable-per-request-metrics", "--enable-prompt-embeds", "--enable-return-routed-experts",
    "--guided-decoding-disable-fallback", "--log-error-stack", "--numa-bind", "--trust-request-chat-template",
    "--use-v2-block-manager",
}  # fmt: skip
SGLANG_VALUES = COMMON_VALUES | {
    "--attention-backend", "--base-gpu-id", "--bucket-e2e-request-latency", "--bucket-inter-token-latency",
    "--bucket-time-to-first-token", "--constrained-json-whitespace-pattern", "--crash-dump-folder",
    "--cuda-graph-backend", "--decode-attention-backend", "--decode-log-interval", "--deepep-mode", "--device",
    "--export-metrics-to-file-dir", "--fp4-gemm-backend", "--fp8-gemm-backend", "--gpu-id-step", "--grammar-backend",
    "--init-expert-location", "--linear-attn-backend", "--load-balance-method", "--log-requests-level",
    "--max-queued-requests", "--mm-attention-backend", "--mm-max-concurrent-calls", "--model-impl",
    "--moe-runner-backend", "--nccl-init-addr", "--nccl-port", "--preferred-sampling-params",
    "--prefill-attention-backend", "--sampling-backend", "--soft-watchdog-timeout", "--stream-interval",
    "--admin-api-key", "--eplb-algorithm", "--eplb-rebalance-num-iterations", "--expert-distribution-recorder-mode",
    "--fp8-gemm-runner-backend", "--kv-events-config", "--mm-process-config", "--nsa-decode-backend",
    "--nsa-prefill-backend", "--numa-node", "--sampling-defaults", "--speculative-attention-mode",
    "--tokenizer-backend", "--warmups", "--tokenizer-worker-num", "--tool-server", "--watchdog-timeout",
    "--weight-version",
}  # fmt: skip
SGLANG_SWITCHES = COMMON_SWITCHES | {
    "--allow-auto-truncate", "--collect-tokens-histogram", "--disable-fast-image-processor", "--disable-flashinfer",
    "--disable-outlines-disk-cache", "--disable-shared-experts-fusion", "--enable-cache-report",
    "--enable-deterministic-inference", "--enable-dp-lm-head", "--enable-eplb",
    "--enable-flashinfer-allreduce-fusion", "--enable-flashinfer-autotune", "--enable-memory-saver",
    "--enable-metrics-for-all-schedulers", "--enable-multimodal", "--enable-nan-detection", "--enable-p2p-check",
    "--enable-request-time-stats-logging", "--enable-symm-mem", "--flashinfer-mla-disable-ragged", "--log-requests",
    "--enable-custom-logit-processor", "--enable-return-hidden-states", "--enable-tokenizer-batch-encode",
    "--keep-mm-feature-on-device", "--stream-response-default-include-usage",
    "--schedule-low-priority-values-first", "--show-time-cost", "--sleep-on-idle", "--stream-output",
}  # fmt: skip
TRTLLM_VALUES = COMMON_VALUES | {
    "--custom-tokenizer", "--gpus-per-node", "--hf-revision", "--log-file", "--media-io-kwargs",
    "--metadata-server-config-file", "--num-postprocess-workers", "--otlp-traces-endpoint", "--server-role",
    "--tool-parser", "--video-pruning-rate", "--custom-module-dirs",
    "--cluster-size",
}  # fmt: skip
TRTLLM_SWITCHES = COMMON_SWITCHES | {"--fail-fast-on-attention-window-too-large", "--no-telemetry"}
SEVERAL = frozenset(  # flags above, and refused ones, that take all words up to the next flag
    {
        "--allowed-origins", "--bucket-e2e-request-latency", "--bucket-inter-token-latency",
        "--bucket-time-to-first-token", "--cuda-graph-bs", "--logits-processors", "--lora-modules", "--lora-paths",
        "--served-model-name",
    }
)  # fmt: skip
