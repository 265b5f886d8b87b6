"""Policies by name: one way to find them and one error text, from the library as from the command line."""

import inspect
import re

import pytest

from stageline.cli.main import invoke as run
from stageline.engine.policies.all_policies import POLICIES, check_policies
from stageline.engine.policies.registry import Registry
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.served import one_pool
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from stageline.testing import Ignoring
from tests.reference.batching import LIMITS
from tests.reference.kv import ADMISSION_TOKENS
from tests.reference.queueing import KEYS
from tests.reference.routing import CHOICES
from tests.unit.engine.builders import plan

BY_KIND = pytest.mark.parametrize("setting", POLICIES)


class NotAPolicy:
    """Has no key."""


class NoKey:
    """Has one that can't be called."""

    key = 3


class WantsMore:
    """Can't be constructed without arguments."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def key(self) -> int:
        """Unused."""
        return self.weight


def router_error(scheduling: Scheduling) -> str:
    with pytest.raises(UsageError) as caught:
        Router(one_pool(Route(plan()), scheduling), 0, Ignoring())
    return str(caught.value)


@BY_KIND
def test_an_unknown_name_gets_the_same_answer_everywhere(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the flag, the value and the known names."""
    scheduling = Scheduling(**{setting: "x"})
    text = router_error(scheduling)
    assert text == f"--{setting} x: there is no such policy; known: {POLICIES[setting].choices}"
    assert all(name in text for name in POLICIES[setting].built_in)
    with pytest.raises(UsageError, match=re.escape(text)):
        check_policies(scheduling)
    assert run(["run", "tests/data/by-kind.plan.json", "--workload", "poisson:rate=1", f"--{setting}", "x"]) == 2
    assert capsys.readouterr().err == f"stageline: {text}\n"


@BY_KIND
def test_help_names_what_the_registry_knows(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--help"]) == 0
    printed = " ".join(re.sub(r"[│\s]+", " ", capsys.readouterr().out).split())
    assert POLICIES[setting].choices in printed


@BY_KIND
def test_the_default_is_marked_and_exists(setting: str) -> None:
    assert f"{getattr(Scheduling(), setting)} (default)" in POLICIES[setting].choices
    check_policies(Scheduling())


@BY_KIND
def test_every_policy_says_what_it_is(setting: str) -> None:
    docs = [inspect.getdoc(policy) for policy in POLICIES[setting].built_in.values()]
    assert len(set(docs)) == len(POLICIES[setting].built_in)


@pytest.mark.parametrize(
    ("setting", "twins"),
    [("batching", LIMITS), ("queueing", KEYS), ("kv", ADMISSION_TOKENS), ("balance", CHOICES)],
)
def test_every_policy_has_a_twin_in_the_reference(setting: str, twins: dict[str, object]) -> None:
    assert list(POLICIES[setting].built_in) == list(twins)


@pytest.mark.parametrize("flag", ["--queueing", "--policy"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:Policy", "No module named 'no'; the class must be importable"),
        (":Policy", "Empty module name; the class must be importable"),
        (f"{__name__}:Missing", "has no attribute 'Missing'; the class must be importable"),
        (f"{__name__}:NotAPolicy", "not a class with the method key"),
        (f"{__name__}:NoKey", "not a class with the method key"),
        (f"{__name__}:router_error", "not a class with the method key"),
        (f"{__name__}:WantsMore", "the class must take no arguments"),
        ("stageline.engine.policies.queueing:StaticPolicy", "abstract"),
    ],
)
def test_a_users_class_that_can_not_be_had(
    capsys: pytest.CaptureFixture[str], flag: str, name: str, reason: str
) -> None:
    text = router_error(Scheduling(queueing=name))
    assert text.startswith(f"--queueing {name}: ")
    assert reason in text
    assert run(["run", "tests/data/by-kind.plan.json", "--workload", "poisson:rate=1,requests=1", flag, name]) == 2
    assert capsys.readouterr().err == f"stageline: {text}\n"


def test_a_users_class_is_not_imported_to_check_the_settings() -> None:
    """The command line may run elsewhere than the router."""
    check_policies(Scheduling(queueing="only.there:Policy"))


@pytest.mark.parametrize(("setting", "name"), [("queueing", "longest-prefix"), ("balance", "prefix")])
def test_a_policy_that_reads_the_prefix_cache_needs_one(setting: str, name: str) -> None:
    assert router_error(Scheduling(**{setting: name})) == f"--{setting} {name} needs a prefix cache: add --prefix-cache"
    check_policies(Scheduling(prefix_cache=True, **{setting: name}))


def test_another_axis_takes_users_classes_when_its_registry_names_their_methods() -> None:
    balance = Registry("balance", {}, users_methods=("choose",))
    assert balance.find(Scheduling(balance=f"{__name__}:Anywhere")) is Anywhere
    with pytest.raises(UsageError, match=r"--balance .*: not a class with the method choose"):
        balance.find(Scheduling(balance=f"{__name__}:NoKey"))


class Anywhere:
    """A routing policy of a user."""

    def choose(self) -> int:
        """Unused."""
        return 0


def test_the_classes_that_settings_name_are_listed_for_those_who_must_trust_them() -> None:
    assert Scheduling(queueing="a:B", balance="kv").users_classes == ["a:B"]
    assert Scheduling(queueing="longest-prefix").users_classes == []
