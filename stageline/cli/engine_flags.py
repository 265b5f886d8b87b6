"""The flags of `stageline plan` that say how a serving engine forms batches."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.api.keywords import PlanKeywords
from stageline.cli.groups import MICROBATCHES, flag
from stageline.cli.numbers import WHOLE
from stageline.errors import BadInput


@Parameter(name="*", group=MICROBATCHES)
@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchFlags:
    """The plan's defaults, which a run may change."""

    serving_engine: Annotated[
        str | None,
        flag(
            "How batches form: a name in the catalogue's engines/ or a TOML file; default: vllm-v1 on GPUs and TPUs, "
            "pipeline on wafers and LPUs.",
            "--serving-engine",
            "--engine-profile",
        ),
    ] = None
    max_num_seqs: Annotated[int | None, WHOLE, flag("Largest number of running sequences of a data-parallel rank.")] = (
        None
    )
    max_num_batched_tokens: Annotated[
        int | None,
        WHOLE,
        flag("Largest number of new tokens in a step of a data-parallel rank."),
    ] = None
    prefix_cache: Annotated[
        bool | None,
        Parameter(
            name="--enable-prefix-caching",
            negative="--no-enable-prefix-caching",
            help="Keep the KV of prompts and reuse it; default: the engine's.",
        ),
    ] = None
    speculative_config: Annotated[
        str | None,
        flag(
            'What drafts tokens, in vLLM\'s JSON: \'{"method": "mtp", "num_speculative_tokens": 1}\'; methods: mtp, '
            "eagle, eagle3, draft_model, ngram. Runs take --acceptance."
        ),
    ] = None
    async_scheduling: Annotated[
        bool | None,
        Parameter(
            name="--async-scheduling",
            negative="--no-async-scheduling",
            help="Schedule a step while the one before it runs, so that the host's time hides; default: the engine's.",
        ),
    ] = None
    enforce_eager: Annotated[bool, flag("Capture no CUDA graphs: the host launches every kernel.")] = False
    cuda_graph_sizes: Annotated[
        str | None,
        flag(
            "Captured sizes in new tokens of a rank, like 1,2,4,8; default: the engine's.",
            "--cuda-graph-sizes",
            "--cudagraph-capture-sizes",
        ),
    ] = None
    cuda_graph_max: Annotated[
        int | None,
        WHOLE,
        flag("Largest captured size; default: the engine's.", "--cuda-graph-max", "--max-cudagraph-capture-size"),
    ] = None
    microbatch: Annotated[int | None, WHOLE, flag("Nominal and largest number of sequences in a microbatch.")] = None
    credits_: Annotated[
        int | None,
        WHOLE,
        flag("Microbatches in flight per replica; default: the engine's, one with a single stage.", "--credits"),
    ] = None
    batched_tokens: Annotated[int | None, WHOLE, flag("Largest number of new tokens in a microbatch.")] = None

    def keywords(self) -> PlanKeywords:
        """As the API takes them."""
        return {
            "serving_engine": self.serving_engine,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "prefix_cache": self.prefix_cache,
            "speculative_config": self.speculative_config,
            "async_scheduling": self.async_scheduling,
            "enforce_eager": self.enforce_eager,
            "cuda_graph_sizes": _sizes(self.cuda_graph_sizes),
            "cuda_graph_max": self.cuda_graph_max,
            "microbatch": self.microbatch,
            "credits": self.credits_,
            "batched_tokens": self.batched_tokens,
        }


def _sizes(text: str | None) -> tuple[int, ...]:
    """ "1,2,4" -> (1, 2, 4). Raises BadInput."""
    if text is None:
        return ()
    sizes = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in sizes):
        raise BadInput("--cuda-graph-sizes", text, "not positive whole numbers with commas", "write it like 1,2,4,8")
    return tuple(int(part) for part in sizes)
