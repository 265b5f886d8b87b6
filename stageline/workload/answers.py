"""Identities of the blocks that answers complete, for traces that name only the blocks of prompts.

A trace shows what an answer was in the prompt of the next turn: that begins with the blocks of this one's prompt and
then repeats the answer. A trace is read once, so an answer's blocks get names of their own when its row is read, and
the later prompts of the conversation, which bring the trace's names for the same blocks, are given ours in their place.
"""

import msgspec

from stageline.engine.rng import STREAM_ANSWER, draw_at, stream_key
from stageline.workload.rows import TraceRow

MAX_NAMES = 1 << 20  # blocks of answers that are remembered; the oldest conversations are forgotten first


class _Turn(msgspec.Struct, frozen=True):
    """The last turn of a branch of a conversation: how its next prompt must go on, and the names of its answer."""

    last_id: int | None  # the trace's name of the last full block of the prompt
    first_block: int  # that the answer completes
    tokens: int  # prompt and answer
    names: tuple[int, ...]


class _Conversation(msgspec.Struct):
    turns: dict[str, _Turn] = {}
    ours: dict[tuple[int, int], int] = {}  # position of a block and the trace's name → our name


class AnswerBlocks:
    """Names the answers of one trace, row by row in file order."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._conversations: dict[str, _Conversation] = {}
        self._rows = self._names = 0

    def named(self, row: TraceRow, turn: str = "", before: str = "") -> TraceRow:
        """The row with the identities of its answer's blocks, and of those that it repeats from earlier answers.

        `turn` and `before` name this turn of `row.conversation` and the one that it goes on from. A next prompt that
        does not begin with the full blocks of the last, or is shorter than its prompt and answer, repeats nothing. Rows
        without conversation or hash ids stay as they are.
        """
        if not row.conversation or not row.hash_ids or not self._block_tokens:
            return row
        chat = self._conversations.pop(row.conversation, None) or _Conversation()
        self._conversations[row.conversation] = chat  # now the youngest
        self._learn(chat, row, chat.turns.pop(before, None))
        ids = (
            tuple([chat.ours.get(place, place[1]) for place in enumerate(row.hash_ids)]) if chat.ours else row.hash_ids
        )
        first = row.prompt_tokens // self._block_tokens
        end = (row.prompt_tokens + row.output_tokens) // self._block_tokens
        key = stream_key(0, STREAM_ANSWER, self._rows, 0)
        names = tuple([draw_at(key, block) >> 1 for block in range(first, end)])  # 63 bits, like every identity
        self._rows += 1
        last = row.hash_ids[first - 1] if 0 < first <= len(row.hash_ids) else None
        chat.turns[turn] = _Turn(last, first, row.prompt_tokens + row.output_tokens, names)
        self._count(len(names))
        return msgspec.structs.replace(row, hash_ids=ids, output_hash_ids=names)

    def _learn(self, chat: _Conversation, row: TraceRow, before: _Turn | None) -> None:
        """Which of the row's blocks are those of the answer before it."""
        if before is None or row.prompt_tokens < before.tokens:
            return
        first = before.first_block
        if first and (len(row.hash_ids) < first or row.hash_ids[first - 1] != before.last_id):
            return
        for block, (theirs, ours) in enumerate(zip(row.hash_ids[first:], before.names, strict=False), first):
            chat.ours.setdefault((block, theirs), ours)
        self._count(len(before.names))

    def _count(self, names: int) -> None:
        """Forget the oldest conversations when there are too many names."""
        self._names += names
        while self._names > MAX_NAMES and len(self._conversations) > 1:
            old = self._conversations.pop(next(iter(self._conversations)))
            self._names -= len(old.ours) + sum(len(turn.names) for turn in old.turns.values())
