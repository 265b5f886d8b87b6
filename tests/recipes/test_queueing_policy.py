"""The recipe for a queueing policy: one built in, and one that stays outside of the project."""

import json

from tests.recipes.scratch import Scratch, named

POLICY = '''\
class LongestOutput(StaticPolicy):
    """The longest output first."""

    def key(self, request: Request) -> int:
        """The output that it may have; how long it will be is not known to a router."""
        return -request.max_output_tokens


'''
TWIN = '''\
def longest_output(replica: Replica, request: Request) -> int:
    """By what may be generated, the most first."""
    return -request.max_output_tokens


'''
TEST = """\
def test_the_longest_output_goes_first() -> None:
    requests = [msgspec.structs.replace(request(i), max_output_tokens=n) for i, n in enumerate((5, 9, 5, 7))]
    assert taken(queue_of("longest-output", *requests)) == [1, 3, 0, 2]


"""
USERS = '''\
"""A policy of a user's: SGLang's lpm."""

from stageline.engine.policies.queueing import QueueState, StateAwarePolicy
from stageline.engine.types import Request


class Lpm(StateAwarePolicy):
    """The longest cached prefix first."""

    needs_prefix_cache = True

    def key(self, request: Request, state: QueueState) -> int:
        """The most cached tokens first."""
        return -state.cached_tokens(request)
'''
TRACE = "".join(
    json.dumps({"arrival_ns": 1000 * i, "prompt_tokens": 500, "output_tokens": 1 + i % 7}) + "\n" for i in range(60)
)


def test_a_queueing_policy(scratch: Scratch) -> None:
    module, twin = "stageline/engine/policies/queueing.py", "tests/reference/queueing.py"
    rules, tests = "docs/rules.md", "tests/unit/engine/policies/test_queueing.py"
    scratch.insert(module, "class LongestPrefix(", POLICY)
    scratch.insert(module, '        "longest-prefix": LongestPrefix,\n', '        "longest-output": LongestOutput,\n')
    scratch.insert(rules, "| `longest-prefix` |", "| `longest-output` | minus the largest output |\n")
    scratch.insert(twin, "KEYS: ", TWIN)
    scratch.insert(twin, '    "longest-prefix": longest_prefix,\n', '    "longest-output": longest_output,\n')
    scratch.insert(tests, "import pytest\n", "import msgspec\n")
    scratch.insert(tests, "def test_looking_at_the_cache_changes", TEST)
    scratch.run("scripts/reference-pages")
    changed = scratch.changed()
    assert changed == {module, rules, twin, tests, "docs/cli.md"}
    assert changed <= named("A queueing policy")
    assert len(changed) <= 6
    scratch.check(
        "tests/unit/engine/policies",
        "tests/property/test_engine_against_reference.py",
        "tests/tree/test_reference_pages.py",
        "-k", "policies or a_page_is or numbered and not (100 or 200 or windows or speculation)",
    )  # fmt: skip
    scratch.stageline("plan", "llama-3.1-8b", "h100-sxm", "-o", "plan.json")
    (scratch.root / "trace.jsonl").write_text(TRACE)
    run = ("plan.json", "--workload", "trace.jsonl", "--max-running", "4")
    assert digest(scratch, *run, "--queueing", "longest-output") != digest(scratch, *run)


def test_a_users_queueing_policy(scratch: Scratch) -> None:
    """It gives what the built-in one gives, also by the older name of the flag."""
    (scratch.root / "mine.py").write_text(USERS)
    scratch.stageline("plan", "llama-3.1-8b", "h100-sxm", "-o", "plan.json")
    workload = "sessions:users=20,system_prompts=3,system=512,question=100,output=20,turns=3,rate=500,requests=60"
    run = ("plan.json", "--workload", workload, "--max-running", "4", "--prefix-cache")
    built_in = digest(scratch, *run, "--queueing", "longest-prefix")
    assert digest(scratch, *run, "--queueing", "mine:Lpm") == built_in
    assert digest(scratch, *run, "--policy", "mine:Lpm") == built_in
    assert digest(scratch, *run) != built_in


def digest(scratch: Scratch, *words: str) -> str:
    """That of a run."""
    return str(json.loads(scratch.stageline("run", *words, "--json"))["digest"])
