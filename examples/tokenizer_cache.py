"""Write a small tokenizer into a Hugging Face cache, for load generators that insist on one and have no network.

    python tokenizer_cache.py CACHE [CORPUS ...]
    HF_HOME=CACHE HF_HUB_OFFLINE=1 aiperf profile --tokenizer stageline/synthetic ...

It splits as Stageline's own counter does: up to six characters that are not white space, with the space before them, or
one white space character. Its vocabulary is what that makes of the corpus files, plain text, with and without their
punctuation: give it the text that the load generator makes its prompts of, and both count the same.
"""

import json
import re
import sys
from pathlib import Path

NAME, REVISION = "stageline/synthetic", "0" * 40
PIECE = r" ?\S{1,6}|\s"
SPECIAL = ("<unk>", "<s>", "</s>")


def pieces(texts):
    """Every piece of the texts once, and every printable character alone and after a space."""
    found = {text: None for char in map(chr, range(33, 127)) for text in (char, f" {char}")}
    for whole in texts:
        for text in (whole, re.sub(r"[^\w\s]", "", whole)):
            found.update(dict.fromkeys(re.findall(PIECE, text)))
            found.update(dict.fromkeys(form for word in text.split() for form in (word[:6], f" {word[:6]}")))
    return [piece for piece in found if piece not in SPECIAL]


def tokenizer(vocabulary):
    """A tokenizer.json: split by the rule, look the piece up."""
    tokens = [*SPECIAL, "\n", " ", *(v for v in vocabulary if v not in "\n ")]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": token} | special for i, token in enumerate(SPECIAL)],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": PIECE}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "unk_token": SPECIAL[0],
        },
    }


def write(cache, texts):
    """The layout that `huggingface_hub` leaves behind; returns the size of the vocabulary."""
    model = Path(cache, "hub", "models--" + NAME.replace("/", "--"))
    snapshot = model / "snapshots" / REVISION
    snapshot.mkdir(parents=True, exist_ok=True)
    (model / "refs").mkdir(exist_ok=True)
    (model / "refs" / "main").write_text(REVISION)
    made = tokenizer(pieces(texts))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 30,
    }
    (snapshot / "tokenizer.json").write_text(json.dumps(made))
    (snapshot / "config.json").write_text("{}")
    (snapshot / "tokenizer_config.json").write_text(json.dumps(config))
    return len(made["model"]["vocab"])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    size = write(sys.argv[1], [Path(name).read_text(encoding="utf-8") for name in sys.argv[2:]])
    print(f"{NAME}: {size} tokens in {sys.argv[1]}")
