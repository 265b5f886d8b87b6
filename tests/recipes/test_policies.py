"""The recipes for batching, routing and KV policies; that for queueing has a file of its own."""

from tests.recipes.scratch import Scratch, named

CHECKS = (
    "tests/unit/engine/policies",
    "tests/property/test_engine_against_reference.py",
    "tests/tree/test_reference_pages.py",
    "-k", "policies or a_page_is or numbered and not (100 or 200 or windows or speculation)",
)  # fmt: skip


def follow(scratch: Scratch, title: str, axis: str, *inserts: tuple[str, str, str]) -> None:
    """Insert the texts before the lines named, write the page of commands, and run the checks of the recipe."""
    for file, before, text in inserts:
        scratch.insert(file, before, text)
    scratch.run("scripts/reference-pages")
    changed = scratch.changed()
    assert changed == {file for file, _, _ in inserts} | {"docs/cli.md"}
    assert changed <= named(title)
    assert len(changed) <= 6
    assert f"tests/reference/{axis}.py" in changed
    scratch.check(*CHECKS)


BATCHING_CLASS = '''\
class Single(BatchingPolicy):
    """One sequence per microbatch."""

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        return 1


'''
BATCHING_TWIN = '''\
def one(replica: Replica) -> int:
    """A single sequence."""
    return 1


'''
BATCHING_TEST = """\
def test_single_is_one_whatever_waits() -> None:
    assert batching(Scheduling(batching="single"), Route(plan()), 4, 8).limit(9, 9, 0) == 1


"""


def test_a_batching_policy(scratch: Scratch) -> None:
    module, twin = "stageline/engine/policies/batching.py", "tests/reference/batching.py"
    follow(
        scratch, "A batching policy", "batching",
        (module, "class Greedy(", BATCHING_CLASS),
        (module, '        "greedy": Greedy,\n', '        "single": Single,\n'),
        ("docs/rules.md", "- `greedy`:", "- `single`: 1;\n"),
        (twin, "LIMITS: ", BATCHING_TWIN),
        (twin, '    "greedy": whole_limit,\n', '    "single": one,\n'),
        ("tests/unit/engine/policies/test_batching.py", "def test_slo_is_the_largest_size", BATCHING_TEST),
    )  # fmt: skip


ROUTING_CLASS = '''\
class MostLoaded(RoutingPolicy):
    """The most outstanding tokens: fill one replica before the next, so that the others could be switched off."""

    def choose(self, replicas: Seq[ReplicaState], request: Request) -> int:
        """See the class."""
        return min(range(len(replicas)), key=lambda i: (-replicas[i].outstanding_tokens, i))


'''
ROUTING_TWIN = '''\
def most_loaded(replica: Replica, request: Request) -> tuple[int, ...]:
    """The most outstanding tokens."""
    return (-outstanding_tokens(replica),)


'''


def test_a_routing_policy(scratch: Scratch) -> None:
    module, twin = "stageline/engine/policies/routing.py", "tests/reference/routing.py"
    tests = "tests/unit/engine/policies/test_routing.py"
    follow(
        scratch, "A routing policy", "routing",
        (module, "class MostKvFree(", ROUTING_CLASS),
        (module, '        "kv": MostKvFree,\n', '        "most-loaded": MostLoaded,\n'),
        ("docs/rules.md", "| `kv` |", "| `most-loaded` | the most outstanding tokens |\n"),
        (twin, "CHOICES: ", ROUTING_TWIN),
        (twin, '    "kv": most_kv_free,\n', '    "most-loaded": most_loaded,\n'),
        (tests, '        ("kv", [2]),\n', '        ("most-loaded", [0]),\n'),
    )  # fmt: skip


KV_CLASS = '''\
class WholePrompt(Grow):
    """As `grow`, but a sequence is admitted only with room for its whole prompt."""

    def admission_tokens(self, sequence: Sequence, chunk: int) -> int:
        """The prompt, or more if that much is written."""
        return max(sequence.request.prompt_tokens, super().admission_tokens(sequence, chunk))


'''
KV_TWIN = '''\
def whole_prompt(request: Request, computed_tokens: int) -> int:
    """All of the prompt, and what is computed beyond it."""
    return max(request.prompt_tokens, computed_tokens)


'''
KV_TEST = """\
def test_the_whole_prompt_is_allocated_at_admission() -> None:
    kv, forming, sequence = policy("prompt", 4), Forming(9, 9), Sequence(REQUEST, 0)
    assert kv.admit(sequence, 1, forming)
    assert sequence.blocks == 2


"""


def test_a_kv_policy(scratch: Scratch) -> None:
    module, twin = "stageline/engine/policies/kv.py", "tests/reference/kv.py"
    follow(
        scratch, "A KV policy", "kv",
        (module, "KV = Registry", KV_CLASS),
        (module, '        "grow": Grow,\n', '        "prompt": WholePrompt,\n'),
        ("docs/rules.md", "- `grow` allocates", "- `prompt` is `grow` with room for the whole prompt.\n"),
        (twin, "ADMISSION_TOKENS: ", KV_TWIN),
        (twin, '    "grow": what_is_written,\n', '    "prompt": whole_prompt,\n'),
        (twin, '"grow",)\n', '"prompt", '),
        ("tests/unit/engine/policies/test_kv.py", "def test_grow_allocates_when", KV_TEST),
    )  # fmt: skip
