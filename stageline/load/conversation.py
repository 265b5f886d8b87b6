"""What a session has said so far: every turn sends all of it again, and something new."""

from typing import Literal

import msgspec

from stageline.engine.types import Request
from stageline.load.prompts import WIDTH, id_alphabet, prompt_of, word_alphabet

Kind = Literal["ids", "text", "chat"]
_REPLIES = 1 << 15  # names of stand-ins for replies, beside those of turns

_encode = msgspec.json.encode


class Template(msgspec.Struct, frozen=True):
    """What a server's chat template adds: to the first message, and to every reply and message that follow.

    The defaults are OpenAI's rule of thumb: 4 tokens for each message, 3 for the chat.
    """

    first_tokens: int = 7
    turn_tokens: int = 8


class Prompts:
    """Makes conversations of one kind: token ids or text for completions, messages for chats."""

    def __init__(self, kind: Kind, seed: int, block_tokens: int = 0, template: Template | None = None) -> None:
        self.kind = kind
        self.block_tokens = block_tokens
        self.template = (template or Template()) if kind == "chat" else Template(0, 0)
        self.alphabet = id_alphabet(seed) if kind == "ids" else word_alphabet(seed)

    def conversation(self, request: Request) -> "Conversation":
        """A new one."""
        return Conversation(self, request)


class Conversation:
    """One session's prompt as it grows.

    A chat gets the server's replies back as they were, text prompts too. Token ids do not come back from a server, so
    a conversation in ids continues with as many other ones; the server's prefix cache then knows the prompt, not the
    reply.
    """

    def __init__(self, prompts: Prompts, request: Request) -> None:
        self._prompts, self._request = prompts, request
        self._turn = 0
        self._said = list[str]()
        self.prompt_tokens = 0

    def say(self) -> bytes:
        """The next turn: the JSON of `prompt`, or of `messages`. `prompt_tokens` then counts all of it."""
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

    def hear(self, text: str, tokens: int) -> None:
        """The reply to the last turn."""
        if self._prompts.kind == "chat":
            self._said.append(_message("assistant", text))
        elif self._prompts.kind == "ids":
            self._said.append(self._prompts.alphabet.own(self._request.index << 16 | _REPLIES | self._turn, tokens))
        else:
            self._said.append(text.strip() + " ")
        self.prompt_tokens += tokens


def _message(role: str, content: str) -> str:
    return '{"role":"%s","content":%s}' % (role, _encode(content).decode())  # noqa: UP031  (braces of JSON)
