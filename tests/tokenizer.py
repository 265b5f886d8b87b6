"""A small tokenizer.json, made by the library that reads it."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from router.api.tokens import WORDS


def trained(path: Path, *, size: int = 1000) -> Path:
    """A byte-level BPE, as GPT-2's and Llama's, that has seen the common words."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([f"{word} {word}" for word in WORDS[::2]], trainer)
    made.save(str(path))
    return path
