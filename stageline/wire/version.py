"""Whoever takes part in a run has the same Stageline: other rules change results, other messages break a session."""

import hashlib
from functools import cache

import stageline
from stageline.errors import VersionMismatch
from stageline.v1 import flow_pb2, router_pb2, stage_pb2
from stageline.wire.frames import FRAME_COLUMNS


@cache
def wire_format() -> str:
    """Twelve hex digits that change with any message or field of the protocol, and with the columns of a frame."""
    lines = [" ".join(FRAME_COLUMNS)]
    for file in (flow_pb2.DESCRIPTOR, stage_pb2.DESCRIPTOR, router_pb2.DESCRIPTOR):
        for name, message in sorted(file.message_types_by_name.items()):
            lines += [f"{name} {field.number} {field.name} {field.type}" for field in message.fields]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def check_version(place: str, version: str, wire: str, here: str) -> None:
    """Raises VersionMismatch unless `place` runs what this process does, which is called `here`."""
    if (version, wire) != (stageline.__version__, wire_format()):
        raise VersionMismatch(
            f"{place} runs {_words(version, wire)}, {here} {_words(stageline.__version__, wire_format())}: "
            "install the same version on all servers of a cluster and where its runs are started, and start them again"
        )


def _words(version: str, wire: str) -> str:
    return f"Stageline {version or 'of an earlier version'} (wire format {wire or 'not told'})"
