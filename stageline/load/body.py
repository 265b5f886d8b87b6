"""The JSON body of a request, joined from bytes because most of it never changes."""

import msgspec

from stageline.errors import BadInput
from stageline.load.reply import Call

_encode = msgspec.json.encode


class Bodies:
    """Bodies for one endpoint; `model` is that of requests that name none.

    `ignore_eos` asks for exactly the output tokens of the workload, with members that vLLM and Stageline know; OpenAI's
    own servers refuse unknown members. `stageline`: the server states emulated times between tokens. `extra` is a JSON
    object of members to add. Raises BadInput for a bad one.
    """

    def __init__(
        self, model: str, *, chat: bool, ignore_eos: bool = True, extra: str = "", stageline: bool = False
    ) -> None:
        options = {"include_usage": True} | ({"include_token_gaps": True} if stageline else {})
        fixed = {"stream": True, "stream_options": options, "temperature": 0}
        fixed |= {"ignore_eos": True} if ignore_eos else {}
        fixed |= _members(extra) if extra else {}
        self._model, self._heads = model, dict[str, bytes]()
        self._rest = b"," + _encode(fixed)[1:-1]
        self._prompt = b',"messages":' if chat else b',"prompt":'
        self._exact = ignore_eos

    def of(self, call: Call) -> bytes:
        """The body of one request."""
        parts = [self._head(call.model or self._model), b',"max_tokens":%d' % call.max_output_tokens]
        if self._exact:
            parts.append(b',"min_tokens":%d' % call.output_tokens)
        if call.priority:
            parts.append(b',"priority":%d' % call.priority)
        if call.conversation:
            parts.append(b',"user":' + _encode(call.conversation))
        return b"".join((*parts, self._prompt, call.prompt, b"}"))

    def _head(self, model: str) -> bytes:
        """What does not change from one request of a model to the next."""
        head = self._heads.get(model)
        if head is None:
            head = self._heads[model] = b'{"model":' + _encode(model) + self._rest
        return head


_RESERVED = {"model", "stream", "max_tokens", "min_tokens", "prompt", "messages", "user", "priority"}


def _members(text: str) -> dict[str, object]:
    try:
        members = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, ValueError) as error:
        reason = f"not a JSON object: {error}"
        raise BadInput("--extra-body", text, reason, 'write it like {"top_p": 0.9}') from None
    if taken := _RESERVED & members.keys():
        raise BadInput("--extra-body", min(taken), "the load client sets this member itself", "leave it out")
    return members
