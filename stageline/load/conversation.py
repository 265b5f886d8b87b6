"""Conversations of several turns: each turn sends everything so far again, and something new."""

from typing import Literal

import msgspec

from stageline.engine.types import Request
from stageline.load.prompts import WIDTH, id_alphabet, prompt_of, word_alphabet

ConversationKind = Literal["ids", "text", "chat"]
_REPLIES = 1 << 15  # separates the names of stand-ins for replies from those of turns

_encode = msgspec.json.encode


class Template(msgspec.Struct, frozen=True):
    """Tokens that a server's chat template adds: for the first message, and for each reply plus next message.

    The defaults are OpenAI's rule of thumb: 4 tokens per message and 3 per chat.
    """

    first_tokens: int = 7
    turn_tokens: int = 8


class Prompts:
    """Makes conversations of one kind: token ids or text for completions, messages for chats."""

    def __init__(
        self, kind: ConversationKind, seed: int, block_tokens: int = 0, template: Template | None = None
    ) -> None:
        self.kind = kind
        self.block_tokens = block_tokens
        self.template = (template or Template()) if kind == "chat" else Template(0, 0)
        self.alphabet = id_alphabet(seed) if kind == "ids" else word_alphabet(seed)

    def conversation(self, request: Request) -> "Conversation":
        """A new conversation that begins with this request."""
        return Conversation(self, request)


class Conversation:
    """One conversation's growing prompt.

    Chats and text prompts repeat the server's replies as they were. A server returns no token ids, so a conversation in
    ids stands in as many other ids for each reply: the server's prefix cache then hits prompts but not replies.
    """

    def __init__(self, prompts: Prompts, request: Request) -> None:
        self._prompts, self._request = prompts, request
        self._turn = 0
        self._said = list[str]()
        self.prompt_tokens = 0

    def next_prompt(self) -> bytes:
        """The next turn as the JSON of `prompt` or `messages`. Mutates `prompt_tokens`, its length."""
        chat = self._prompts.kind == "chat"
        template = self._prompts.template
        added = template.turn_tokens if self._turn else template.first_tokens
        new = prompt_of(self._request, self._prompts.alphabet, self._prompts.block_tokens, self._turn, added)
        self.prompt_tokens += len(new) // WIDTH + added
        self._said.append(_message("user", new[:-1]) if chat else new)
        self._turn += 1
        if self._prompts.kind == "ids":
            return b"[" + "".join(self._said)[:-1].encode() + b"]"
        if chat:
            return b"[" + ",".join(self._said).encode() + b"]"
        return _encode("".join(self._said)[:-1])

    def add_reply(self, text: str, tokens: int) -> None:
        """Appends the reply to the latest turn."""
        if self._prompts.kind == "chat":
            self._said.append(_message("assistant", text))
        elif self._prompts.kind == "ids":
            self._said.append(self._prompts.alphabet.own(self._request.index << 16 | _REPLIES | self._turn, tokens))
        else:
            self._said.append(text.strip() + " ")
        self.prompt_tokens += tokens


def _message(role: str, content: str) -> str:
    return '{"role":"%s","content":%s}' % (role, _encode(content).decode())  # noqa: UP031  (braces of JSON)
