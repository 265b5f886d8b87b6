"""The models behind the endpoint of a fleet."""

import pytest

from router.api.tokenizer import SYNTHETIC
from router.live.models import ServedModels, UnknownModel
from stageline.engine.route import Route
from stageline.engine.served import ServedFleet, ServedPool
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput, UsageError
from stageline.testing import uniform_plan

CACHED = Scheduling(prefix_cache=True)


def pool(name: str, model: str, context_tokens: int = 100, *, settings: Scheduling = Scheduling()) -> ServedPool:
    return ServedPool(name, Route(uniform_plan(1, model=model, max_context_tokens=context_tokens)), settings)


def models(*pools: ServedPool, served: str = "") -> ServedModels:
    return ServedModels(ServedFleet(pools, Scheduling()), served, SYNTHETIC)


def test_pools_of_one_model_are_one_model() -> None:
    """Requests need not name it; the longest context counts."""
    found = models(pool("a", "m", 100), pool("b", "m", 300))
    assert found.listed == ("m",)
    assert found.find("") is found.find("someone/M-Instruct")
    assert (found.find("m").asked, found.find("m").max_context_tokens, found.find("m").reader.limit) == ("", 300, 300)


def test_a_request_for_one_of_several_models_says_which() -> None:
    found = models(pool("a", "m", 100), pool("b", "n", 300), pool("c", "m", 200))
    assert found.listed == ("m", "n")
    assert [(found.find(name).asked, found.find(name).max_context_tokens) for name in found.listed] == [
        ("m", 200),
        ("n", 300),
    ]
    assert found.max_context_tokens == 300
    with pytest.raises(BadInput, match="several models are served here; name one of m, n"):
        found.find("")
    with pytest.raises(UnknownModel):
        found.find("k")


def test_the_closest_name_counts() -> None:
    """m-fp8 is a name of m as much as of m-fp8."""
    found = models(pool("a", "m"), pool("b", "m-fp8"))
    assert [found.find(name).asked for name in ("m", "m-fp8", "x/m-fp8-tuned", "m-tuned")] == [
        "m",
        "m-fp8",
        "m-fp8",
        "m",
    ]


def test_other_names_are_those_of_one_model() -> None:
    assert models(pool("a", "m"), pool("b", "m"), served="x, y").listed == ("x", "y")
    with pytest.raises(UsageError, match="--served-model-name x: this fleet serves m, n; leave it out"):
        models(pool("a", "m"), pool("b", "n"), served="x")


def test_the_prefix_caches_of_a_model_name_the_same_blocks() -> None:
    sized = [Scheduling(prefix_cache=True, hash_block_tokens=tokens) for tokens in (0, 16, 32)]
    found = models(pool("a", "m", settings=sized[0]), pool("b", "m", settings=sized[1]), pool("c", "m"))
    assert found.find("m").block_tokens == 16  # that of the plan, too
    assert models(pool("a", "m")).find("m").block_tokens == 0
    with pytest.raises(UsageError, match="blocks of 16 tokens in pool a and 32 tokens in pool b"):
        models(pool("a", "m", settings=sized[0]), pool("b", "m", settings=sized[2]))
    models(pool("a", "m", settings=sized[0]), pool("b", "n", settings=sized[2]))
