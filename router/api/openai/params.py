"""Turns the bodies of requests into GenerationParams."""

from collections.abc import Sequence
from typing import Any

import msgspec

from router.api.generation import MAX_CHOICES, GenerationParams, checked_stops
from router.api.openai.schema import ChatRequest, CommonFields, CompletionRequest, Message, Tool
from router.api.openai.tools import calls_text, format_shape, tool_shape, tools_text
from router.api.prompts import PromptReader
from stageline.errors import BadInput
from stageline.workload.rows import MAX_TOKENS

READER = PromptReader()


def chat_params(body: ChatRequest, exact_tokens: int, reader: PromptReader = READER) -> list[GenerationParams]:
    """The params of a chat, as a list of one. Raises BadInput, naming the field."""
    if body.logprobs or body.top_logprobs:
        raise no_logprobs("logprobs")
    _check_stream_options(body)
    if not body.messages:
        raise BadInput("messages", None, "the list is empty", "send at least one message")
    shape = tool_shape(body.tools or (), body.tool_choice) or format_shape(body)
    text = chat_text(body.messages, reader, body.tools or ())
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    prompt = text.encode("utf-8", "surrogatepass")
    last = _content(body.messages[-1], reader)
    params = _params(body, prompt, reader.count(text), last, limit, exact_tokens)
    return [msgspec.structs.replace(params, before_answer="\nassistant: ", shape=shape)]  # see chat_text


def completion_params(
    body: CompletionRequest, exact_tokens: int, reader: PromptReader = READER
) -> list[GenerationParams]:
    """The params of each prompt. Raises BadInput, naming the field."""
    if body.logprobs is not None:  # 0 asks for those of the output's own tokens
        raise no_logprobs("logprobs")
    _check_stream_options(body)
    if body.suffix:
        raise BadInput("suffix", body.suffix, "insertion is not emulated", "leave it out")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise BadInput("best_of", body.best_of, "candidates are not ranked", "leave it out or make it equal to n")
    shape = format_shape(body)
    return [
        msgspec.structs.replace(_params(body, prompt, count, original, body.max_tokens, exact_tokens), shape=shape)
        for prompt, count, original in prompts("prompt", body.prompt, reader, MAX_CHOICES)
    ]


def chat_text(messages: Sequence[Message], reader: PromptReader, tools: Sequence[Tool] = ()) -> str:
    """All messages as one text, which is the prompt. Raises BadInput for what can't be counted."""
    reader.check(len(messages))
    text = tools_text(tools) + "\n".join(f"{m.role}: {_content(m, reader)}{calls_text(m)}" for m in messages)
    reader.check(reader.tokenizer.least(text))
    return text


def no_logprobs(field: str) -> BadInput:
    """The error for a request of log probabilities, which synthetic output does not have."""
    return BadInput(field, None, "the output is synthetic and has no log probabilities", "leave logprobs out")


def _check_stream_options(body: CommonFields) -> None:
    if body.stream_options is not None and not body.stream:
        raise BadInput("stream_options", None, "only a stream has options", "leave them out, or set stream to true")


def _content(message: Message, reader: PromptReader) -> str:
    content = message.content
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    images = sum(part.get("type") in _IMAGES for part in content)
    reader.check(images * reader.image_tokens)
    return "".join([_part(part, reader) for part in content])


def _part(part: dict[str, Any], reader: PromptReader) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type")
    if kind == "refusal":
        return str(part.get("refusal", ""))
    if kind not in _IMAGES:
        raise BadInput("messages", kind, "parts of this type are not emulated", "send text or image_url")
    source = part.get("image_url", "")
    return reader.image(str(source.get("url", "") if isinstance(source, dict) else source))


_IMAGES = ("image_url", "input_image")
Prompt = tuple[bytes, int, str | list[int]]  # GenerationParams.prompt, its tokens, the prompt itself


def prompts(field: str, prompt: str | list[str | int | list[int]], reader: PromptReader, most: int) -> list[Prompt]:
    """At most `most` prompts of a body's `field`, counted. Raises BadInput."""
    if isinstance(prompt, str):
        return [_prompt(field, prompt, reader)]
    if not prompt:
        raise BadInput(field, None, "the list is empty", "send at least one prompt")
    if isinstance(prompt[0], int):
        reader.check(len(prompt))
    elif len(prompt) > most:
        raise BadInput(field, len(prompt), f"more than {most} prompts in one call", "send them in several")
    ids = [one for one in prompt if isinstance(one, int)]
    if not ids:
        return [_prompt(field, one, reader) for one in prompt if not isinstance(one, int)]
    if len(ids) != len(prompt):
        raise BadInput(field, None, "token ids and texts in one list", "send a text, token ids, or a list of either")
    return [_prompt(field, ids, reader)]


def _prompt(field: str, prompt: str | list[int], reader: PromptReader) -> Prompt:
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "surrogatepass"), reader.count(prompt), prompt
    reader.check(len(prompt))
    if not all(0 <= one < 1 << 63 for one in prompt):
        raise BadInput(field, None, "token ids are whole numbers from 0 to 2**63 - 1")
    return msgspec.json.encode(prompt), len(prompt), prompt


def _params(
    body: CommonFields, prompt: bytes, count: int, original: str | list[int], limit: int | None, exact: int
) -> GenerationParams:
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if limit is not None and not 1 <= limit <= MAX_TOKENS:
        raise BadInput("max_tokens", limit, f"not between 1 and {MAX_TOKENS} tokens", "give 1 or more, or null")
    least = body.min_tokens or 0
    if not 0 <= least <= MAX_TOKENS:
        raise BadInput("min_tokens", least, f"not between 0 and {MAX_TOKENS} tokens", "give 0 or more")
    seed = body.seed or 0
    if not -(1 << 63) <= seed < 1 << 64:
        raise BadInput("seed", seed, "does not fit 64 bits")
    return GenerationParams(
        prompt=prompt,
        prompt_tokens=count,
        ids=tuple(original) if isinstance(original, list) else (),
        prompt_text=original if isinstance(original, str) else None,
        max_tokens=limit or 0,
        min_tokens=least,
        exact_tokens=exact,
        ignore_eos=bool(body.ignore_eos),
        stop=checked_stops(stop),
        seed=seed,
    )
