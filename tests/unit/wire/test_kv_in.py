"""Chunks of KV: what the sender makes of a part, and what the receiver accepts."""

import pytest

from stageline.errors import ProtocolError
from stageline.v1 import stage_pb2 as pb
from stageline.wire.frames import CAPPED_BYTES, CHUNK_BYTES, PayloadMode
from stageline.wire.kv_in import KvDecoder
from stageline.wire.kv_out import Part, chunks


def decoder(mode: PayloadMode = "full") -> KvDecoder:
    return KvDecoder("stage 0 of replica 0", "stage 1 of replica 2", mode)


@pytest.mark.parametrize("mode", ["capped", "full"])
@pytest.mark.parametrize(
    "size", [1, CAPPED_BYTES, CAPPED_BYTES + 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES - 1, 3 * CHUNK_BYTES]
)
def test_a_part_lands_whole(mode: PayloadMode, size: int) -> None:
    part, receiver = Part(7, size), decoder(mode)
    sent = list(chunks(part, mode))
    assert sum(len(c.payload) for c in sent) == (size if mode == "full" else min(size, CAPPED_BYTES))
    assert all(0 < len(c.payload) <= CHUNK_BYTES for c in sent)
    assert [receiver.chunk(c) for c in sent] == [None] * (len(sent) - 1) + [part]


def test_parts_follow_each_other() -> None:
    receiver, parts = decoder(), [Part(1, 5), Part(1, 5), Part(2, CHUNK_BYTES + 1)]
    landed = [receiver.chunk(c) for part in parts for c in chunks(part, "full")]
    assert [part for part in landed if part] == parts


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([pb.KvChunk(request=3, kv_bytes=9, payload=b"12345678", last=True)], "8 bytes came instead of 9"),
        ([pb.KvChunk(request=3, kv_bytes=2, payload=b"123")], "3 bytes came instead of 2"),
        (
            [pb.KvChunk(request=3, kv_bytes=9, payload=b"1"), pb.KvChunk(request=4, kv_bytes=9, payload=b"2")],
            r"a chunk of request 4 \(9 bytes\) came in between",
        ),
        (
            [pb.KvChunk(request=3, kv_bytes=9, payload=b"1"), pb.KvChunk(request=3, kv_bytes=8, payload=b"2")],
            r"a chunk of request 3 \(8 bytes\) came in between",
        ),
    ],
)
def test_other_chunks_are_refused_with_request_stages_and_bytes(sent: list[pb.KvChunk], reason: str) -> None:
    receiver = decoder()
    with pytest.raises(
        ProtocolError, match=rf"KV of request 3, \d bytes from stage 0 of replica 0 to stage 1 of replica 2: {reason}"
    ):
        for chunk in sent:
            receiver.chunk(chunk)
