"""Qwen-Bailian traces: chat_id, parent_chat_id (-1: root), timestamp (s), input_length, output_length, hash_ids.

A hash id stands for 16 tokens. Source: github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from stageline.units import NS_PER_S
from stageline.workload.answers import AnswerBlocks
from stageline.workload.formats.base import JsonlFormat, hash_ids, name_text
from stageline.workload.lines import TraceFile
from stageline.workload.rows import TraceRow

_MAX_CHATS = 200_000  # chats whose root is remembered; bounds memory on traces of any length


class BailianFormat(JsonlFormat):
    """A Bailian trace. A request's conversation is the root of its chat; an unknown or forgotten parent is a root.

    A request's prompt repeats the answer of its parent.
    """

    name = "bailian"
    keys = frozenset({"chat_id", "timestamp", "input_length", "output_length"})
    hash_block_tokens = 16

    def __init__(self, file: TraceFile) -> None:
        super().__init__(file)
        self._roots: dict[str, str] = {}
        self._answers = AnswerBlocks(self.hash_block_tokens)

    def parse(self, item: str) -> TraceRow:
        """See TraceFormat."""
        fields = self.fields(item)
        time_ns = fields.time_ns("timestamp", NS_PER_S)
        prompt, output = fields.tokens("input_length"), fields.tokens("output_length")
        chat = name_text(fields, "chat_id")
        parent = name_text(fields, "parent_chat_id") if "parent_chat_id" in fields.values else "-1"
        row = TraceRow(time_ns, prompt, output, conversation=self._root(chat, parent), hash_ids=hash_ids(fields))
        row = self._answers.named(row, chat, parent)
        self._roots[chat] = row.conversation
        if len(self._roots) > _MAX_CHATS:
            del self._roots[next(iter(self._roots))]
        return row

    def _root(self, chat: str, parent: str) -> str:
        return chat if parent == "-1" else self._roots.get(parent, parent)
