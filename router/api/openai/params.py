"""Turns the bodies of requests into GenerationParams."""

from collections.abc import Iterable

import msgspec

from router.api.generation import MAX_CHOICES, GenerationParams, checked_stops
from router.api.openai.schema import ChatRequest, CommonFields, CompletionRequest, Message
from router.api.tokenizer import SYNTHETIC, Tokenizer
from stageline.errors import BadInput
from stageline.workload.rows import MAX_TOKENS


def chat_params(body: ChatRequest, exact_tokens: int, tokenizer: Tokenizer = SYNTHETIC) -> list[GenerationParams]:
    """The params of a chat, as a list of one. Raises BadInput, naming the field."""
    if body.logprobs or body.top_logprobs:
        raise no_logprobs("logprobs")
    if not body.messages:
        raise BadInput("messages", None, "the list is empty", "send at least one message")
    text = chat_text(body.messages)
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    prompt = text.encode("utf-8", "surrogatepass")
    last = _content(body.messages[-1])
    params = _params(body, prompt, tokenizer.count(text), last, limit, exact_tokens)
    return [msgspec.structs.replace(params, before_answer="\nassistant: ")]  # see chat_text


def completion_params(
    body: CompletionRequest, exact_tokens: int, tokenizer: Tokenizer = SYNTHETIC
) -> list[GenerationParams]:
    """The params of each prompt. Raises BadInput, naming the field."""
    if body.logprobs:
        raise no_logprobs("logprobs")
    if body.suffix:
        raise BadInput("suffix", body.suffix, "insertion is not emulated", "leave it out")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise BadInput("best_of", body.best_of, "candidates are not ranked", "leave it out or make it equal to n")
    return [
        _params(body, prompt, count, original, body.max_tokens, exact_tokens)
        for prompt, count, original in _prompts(body.prompt, tokenizer)
    ]


def chat_text(messages: Iterable[Message]) -> str:
    """All messages as one text, which is the prompt."""
    return "\n".join(f"{m.role}: {_content(m)}" for m in messages)


def no_logprobs(field: str) -> BadInput:
    """The error for a request of log probabilities, which synthetic output does not have."""
    return BadInput(field, None, "the output is synthetic and has no log probabilities", "leave logprobs out")


def _content(message: Message) -> str:
    content = message.content
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if isinstance(part.get("text"), str))


Prompt = tuple[bytes, int, str | list[int]]  # GenerationParams.prompt, its tokens, the prompt itself


def _prompts(prompt: str | list[str | int | list[int]], tokenizer: Tokenizer) -> list[Prompt]:
    if isinstance(prompt, str):
        return [_prompt(prompt, tokenizer)]
    if not prompt:
        raise BadInput("prompt", None, "the list is empty", "send at least one prompt")
    if not isinstance(prompt[0], int) and len(prompt) > MAX_CHOICES:
        raise BadInput("prompt", len(prompt), f"more than {MAX_CHOICES} prompts in one call", "send them in several")
    ids = [one for one in prompt if isinstance(one, int)]
    if not ids:
        return [_prompt(one, tokenizer) for one in prompt if not isinstance(one, int)]
    if len(ids) != len(prompt):
        raise BadInput("prompt", None, "token ids and texts in one list", "send a text, token ids, or a list of either")
    return [_prompt(ids, tokenizer)]


def _prompt(prompt: str | list[int], tokenizer: Tokenizer) -> Prompt:
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "surrogatepass"), tokenizer.count(prompt), prompt
    if not all(0 <= one < 1 << 63 for one in prompt):
        raise BadInput("prompt", None, "token ids are whole numbers from 0 to 2**63 - 1")
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
