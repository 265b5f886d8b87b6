"""The recipe for a workload format."""

from tests.recipes.scratch import Scratch, named

MODULE = '''\
"""A trace for this test: at_s, in, out."""

from stageline.units import NS_PER_S
from stageline.workload.formats.base import CsvFormat
from stageline.workload.rows import TraceRow


class MineFormat(CsvFormat):
    """See the module."""

    name = "mine"
    columns = frozenset({"at_s", "in", "out"})

    def parse(self, item: str) -> TraceRow:
        """See TraceFormat."""
        fields = self.fields(item)
        return TraceRow(fields.time_ns("at_s", NS_PER_S), fields.tokens("in"), fields.tokens("out"))
'''
TEST = """\
def test_mine(write: Write) -> None:
    requests = drain(open_workload(write("at_s,in,out\\n1,10,2\\n3,5,1\\n")))
    assert brief(requests) == [(0, 0, 10, 2), (1, 2 * 10**9, 5, 1)]
    with pytest.raises(BadInput, match="column in: not a whole number"):
        drain(open_workload(write("at_s,in,out\\n1,x,2\\n")))


"""


def test_a_workload_format(scratch: Scratch) -> None:
    module, registry = "stageline/workload/formats/mine.py", "stageline/workload/registry.py"
    tests, page = "tests/unit/workload/test_formats.py", "docs/workloads.md"
    scratch.add(module, MODULE)
    imported = "from stageline.workload.formats.mooncake import"
    scratch.insert(registry, imported, "from stageline.workload.formats.mine import MineFormat\n")
    scratch.insert(registry, "    VidurFormat,\n", "    MineFormat,\n")
    scratch.insert(tests, "def test_vidur_decimals_are_exact", TEST)
    scratch.insert(page, "| Mooncake (JSONL)", "| Mine (CSV) | `at_s`, `in`, `out` | seconds | |\n")
    assert scratch.changed() == {module, registry, tests, page} <= named("A workload format", NAME="mine")
    scratch.check(f"{tests}::test_mine")
    (scratch.root / "trace").write_text("at_s,in,out\n0,64,2\n")
    scratch.stageline("plan", "llama-3.1-8b", "h100-sxm", "-o", "plan.json")
    assert "mine:trace" in scratch.stageline("run", "plan.json", "--workload", "trace", "--json")
