"""The synthetic tokenizer and the synthetic output.

A token is up to six non-space characters with the space before them, if any, or one other white space character: about
4.5 characters of English prose. Output tokens are words of at most six letters, so the text of n output tokens counts
as n tokens.
"""

import re
import zlib
from array import array
from collections.abc import Sequence
from hashlib import blake2b

from stageline.engine.rng import draw_at

VOCABULARY = 1 << 17  # ids are hashes below this
MAX_PIECE_CHARACTERS = 7  # of a token
_PIECE = re.compile(r" ?\S{1,6}|\s")
_TEXT = """
a able about above add after again all along also always and any are around ask at away back base be become
before begin being best better big both bring but by call can case change city close come common could course
day deep did do does done door down draw drive each early earth ease east eat edge end enough even ever every
eye face fact fall far fast father few field fill find fine fire first five fly follow food foot for force
form found four free from front full game gave get girl give go gold good got great green ground group grow
had half hand hard has have he head hear heart heat help her here high him his hold home hope hot hour house
how idea if in inch is island it just keep kind king knew know land large last late laugh lay lead learn leave
left less let letter life light like line list listen little live long look lot love low made main make man
many map mark may me mean men might mile mind miss money moon more most mother move much music must my name
near need never new next night no north note notice now number object of off often oh old on once one only
open or order other our out over own page paper part pass people plain plan plant play point port pose press
pull put quick rain ran reach read ready real red rest right river road rock room round rule run said same saw
say school sea second see seem self serve set she ship short should show side simple since sing sit six size
sky slow small snow so some song soon south stand star start state stay step still stop story street strong
study such sun sure table take talk teach tell ten test than that the them then there these they thing think
this those though three time to told too took top toward town travel tree true try turn two under unit until
up upon us use usual very voice vowel wait walk want war warm was watch water way we week well went were west
what wheel when where which while white who whole why will wind with wonder wood word work world would write
year yes you young your
"""
WORDS = tuple(_TEXT.split())
_ENCODED = tuple(f'" {text}"'.encode() for text in WORDS)


def count(text: str) -> int:
    """Tokens of a text."""
    return len(_PIECE.findall(text))


def pieces(text: str) -> list[str]:
    """The tokens of a text, in order; joined, they are the text."""
    return _PIECE.findall(text)


def token_id(piece: str) -> int:
    """The id of a token, a hash of its text."""
    return zlib.crc32(piece.encode("utf-8", "surrogatepass")) % VOCABULARY


def block_hashes(ids: Sequence[int], block_tokens: int) -> tuple[int, ...]:
    """Identities of the full blocks of a prompt, for the prefix cache: a hash of each block's own tokens."""
    full = len(ids) - len(ids) % block_tokens
    return tuple(_block_hash(ids[at : at + block_tokens]) for at in range(0, full, block_tokens))


def _block_hash(ids: Sequence[int]) -> int:
    digest = blake2b(array("q", ids).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # fits a signed 64-bit column


def output_key(prompt: bytes, seed: int, choice: int) -> int:
    """The key of one choice's text: a hash of the prompt, the request's seed and the number of the choice."""
    digest = blake2b(prompt, digest_size=8, key=seed.to_bytes(16, "big", signed=True) + choice.to_bytes(4, "big"))
    return int.from_bytes(digest.digest())


def word(key: int, position: int) -> str:
    """The text of output token `position`, with a space before all but the first."""
    text = WORDS[draw_at(key, position) % len(WORDS)]
    return f" {text}" if position else text


def encoded_word(key: int, position: int) -> bytes:
    """`word` as a JSON string."""
    if not position:
        return f'"{word(key, 0)}"'.encode()
    return _ENCODED[draw_at(key, position) % len(_ENCODED)]
