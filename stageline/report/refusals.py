"""Requests that no plan of a model, or not this one, can hold: why, and what helps."""

from collections.abc import Sequence


def refused_text(limit: int | None = None, models: Sequence[str] = ()) -> str:
    """What refused requests are, and the way out; `limit` is the longest that the plan takes, 0: none, None: several.

    `models`, if given, are those that are served: a request may have named another one, or none of several.
    A plan takes what its model has positions for, so that only shorter requests help beyond it.
    """
    longer = "each fits no empty KV ledger"
    if limit != 0:
        which = "its plan takes" if limit is None else f"the {limit:,} tokens that the plan takes"
        longer = f"each is longer than {which} (its model's context, or --max-model-len) or fits no empty KV ledger"
    if models:
        other = f"another model than {models[0]}" if len(models) == 1 else f"none of the models {', '.join(models)}"
        longer += f", or names {other}"
    return (
        f"{longer}; shorten them, or plan with more KV room (--devices, --tensor-parallel-size, --kv-cache-dtype fp8)"
    )
