"""Which rows of a table of MoE kernels are those of a weight format: the rows of the kernel that engines run it in.

vLLM 0.24 has two kernels for some formats, and a checkpoint's scheme decides between them (its oracles in
`fused_moe/oracle`, and `_supports_quant_scheme` of each kernel):

- FP8 with a scale per tensor: on Hopper, activations that are scaled as they come (`--quantization fp8`, FP8-dynamic
  checkpoints) run in Triton, static scales (ModelOpt) in FlashInfer's CUTLASS kernel. The tables time the latter alone.
  Triton's rows of block FP8 stand for the former: where a table times Triton on both, L40S's, their medians differ by
  0 to 4 % in every band of tokens.
- MXFP4: gpt-oss has kernels of its own (OpenAI's Triton kernels, TensorRT-LLM's on Blackwell), any other checkpoint
  runs in Marlin.
"""

from collections.abc import Iterable

from stageline.cost.gemm_shapes import TABLE_FORMATS

Row = tuple[str, str]  # moe_dtype, kernel_source


def expert_formats(rows: Iterable[Row]) -> dict[Row, tuple[str, ...]]:
    """The weight formats that each kind of row of one table stands for; none for a format that is not modelled."""
    kinds = set(rows)
    static = {source for dtype, source in kinds if dtype == "fp8"}
    triton = {source for dtype, source in kinds if dtype == "fp8_block" and "triton" in source}
    apart = bool(triton) and bool(static) and all("flashinfer_cutlass" in source for source in static)
    return {kind: _formats(*kind, apart=apart) for kind in kinds}


def _formats(dtype: str, source: str, *, apart: bool) -> tuple[str, ...]:
    """`apart`: static and dynamic scales of FP8 have kernels of their own."""
    if dtype not in TABLE_FORMATS:
        return ()
    name = TABLE_FORMATS[dtype]
    if apart and name == "fp8":
        return ("fp8-static",)
    if apart and name == "fp8-block" and "triton" in source:
        return (name, "fp8")
    if name == "mxfp4" and "gptoss" in source and "marlin" not in source:
        return ("mxfp4-openai",)
    return (name,)
