"""The models behind the endpoint: by which names clients may call them, and what their requests may be."""

from collections.abc import Sequence
from typing import NamedTuple

from router.api.prompts import PromptReader
from router.api.tokenizer import Tokenizer
from router.live.names import ModelNames
from stageline.engine.served import ServedFleet, ServedPool
from stageline.errors import BadInput, UsageError
from stageline.workload.rows import MAX_TOKENS


class ServedModel(NamedTuple):
    """One model. `asked`: what its requests say (`Request.model`), nothing where the router serves no other."""

    asked: str
    names: ModelNames
    max_context_tokens: int  # of the pool that takes the longest requests
    reader: PromptReader
    block_tokens: int  # that one identity of a prompt's blocks stands for; 0: no pool has a prefix cache


class ServedModels:
    """Those of a fleet, in the order of its pools. `served`: see ModelNames, for a router with one model only.

    Raises UsageError for names or prefix caches that do not fit together.
    """

    def __init__(self, fleet: ServedFleet, served: str, tokenizer: Tokenizer, image_tokens: int = 0) -> None:
        models = {pool.route.plan.model: None for pool in fleet.pools}
        if served and len(models) > 1:
            raise UsageError(
                f"--served-model-name {served}: this fleet serves {', '.join(models)}; leave it out, and clients call "
                "each model by its own name"
            )
        self._models = []
        for model in models:
            pools = [pool for pool in fleet.pools if pool.route.plan.model == model]
            longest = min(max(pool.route.max_context_tokens for pool in pools), MAX_TOKENS)
            reader = PromptReader(tokenizer, image_tokens, longest)
            asked = model if len(models) > 1 else ""
            names = ModelNames(model, served)
            self._models.append(ServedModel(asked, names, longest, reader, _block_tokens(model, pools)))

    @property
    def listed(self) -> tuple[str, ...]:
        """The names that /v1/models lists."""
        return tuple(name for model in self._models for name in model.names.listed)

    @property
    def max_context_tokens(self) -> int:
        """The longest context of all."""
        return max(model.max_context_tokens for model in self._models)

    def find(self, name: str) -> ServedModel:
        """The model of that name; an empty one means the only one. Raises UnknownModel or BadInput."""
        if not name and len(self._models) > 1:
            raise BadInput("model", None, "several models are served here", f"name one of {', '.join(self.listed)}")
        found = [model for model in self._models if model.names.knows(name)]
        if not found:
            raise UnknownModel(f"The model `{name}` does not exist.")
        return max(found, key=lambda model: (name in model.names.listed, len(model.asked)))  # the closest name


class UnknownModel(UsageError):
    """The request is for a model that is not served here."""

    grpc_code = "NOT_FOUND"
    http_status = 404


def _block_tokens(model: str, pools: Sequence[ServedPool]) -> int:
    sizes = {
        pool.scheduling.hash_block_tokens or pool.route.plan.block_tokens: pool.name
        for pool in pools
        if pool.scheduling.prefix_cache
    }
    if len(sizes) > 1:
        named = " and ".join(f"{tokens} tokens in pool {pool}" for tokens, pool in sizes.items())
        raise UsageError(
            f"the prefix caches of {model} name blocks of {named}: a live request has one list of blocks; give the "
            "pools the same hash_block_tokens"
        )
    return next(iter(sizes), 0)
