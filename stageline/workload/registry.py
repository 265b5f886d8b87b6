"""Which format a file is in, decided by its content."""

from pathlib import Path

from stageline.errors import BadInput
from stageline.workload.formats.azure import AzureFormat
from stageline.workload.formats.bailian import BailianFormat
from stageline.workload.formats.base import Format, Head
from stageline.workload.formats.burstgpt import BurstGptFormat
from stageline.workload.formats.mooncake import MooncakeFormat
from stageline.workload.formats.native import NativeFormat
from stageline.workload.formats.sharegpt import ShareGptFormat
from stageline.workload.formats.vidur import VidurFormat
from stageline.workload.lines import TraceFile

FORMATS: tuple[type[Format], ...] = (
    AzureFormat,
    BurstGptFormat,
    VidurFormat,
    NativeFormat,
    BailianFormat,
    MooncakeFormat,
    ShareGptFormat,
)


def open_trace(path: Path) -> Format:
    """Opens a trace and recognises its format. BadInput when it can't be read or is none of FORMATS."""
    file = TraceFile(path)
    try:
        text = file.head()
    except OSError as error:
        raise BadInput(f"workload {path}", None, f"can't be read: {error.strerror}", "give a file") from None
    head = Head.of(text)
    for candidate in FORMATS:
        if candidate.recognises(head):
            return candidate(file)
    file.close()
    known = ", ".join(f.name for f in FORMATS)
    if not head.first:
        raise BadInput(f"workload {path}", None, "the file is empty", f"give a trace in one of: {known}")
    raise BadInput(f"workload {path}", text[:60], "no known trace format", f"known formats: {known}")
