"""Reads prompts: counts their tokens, without ever counting what no context could hold."""

from hashlib import blake2b

import msgspec

from router.api.tokenizer import SYNTHETIC, Tokenizer
from stageline.errors import BadInput
from stageline.workload.rows import MAX_TOKENS


class ContextTooLong(BadInput):
    """Prompt and output together are longer than the model's context."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class PromptReader(msgspec.Struct, frozen=True):
    """`image_tokens`: what an image counts as; 0: images are refused. `limit`: tokens of the longest context."""

    tokenizer: Tokenizer = SYNTHETIC
    image_tokens: int = 0
    limit: int = MAX_TOKENS

    def count(self, text: str) -> int:
        """Tokens of a prompt. Raises ContextTooLong for one that is too long, however it may be split."""
        self.check(self.tokenizer.least(text))
        return self.tokenizer.count(text)

    def check(self, tokens: int) -> None:
        """Raises ContextTooLong for a prompt of at least that many tokens."""
        if tokens > self.limit:
            raise ContextTooLong(
                f"This model's maximum context length is {self.limit} tokens. However, your prompt has at least "
                f"{tokens} tokens. Please reduce its length."
            )

    def image(self, source: str) -> str:
        """The text that stands for an image: `image_tokens` tokens, the same for the same source. Raises BadInput."""
        if not self.image_tokens:
            hint = "start the router with --image-tokens N, the tokens that an image counts as"
            raise BadInput("messages", None, "images are not counted here", hint)
        digest = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        key = int.from_bytes(digest)
        return "".join([self.tokenizer.word(key, i) for i in range(1, self.image_tokens)]) + "\n"
