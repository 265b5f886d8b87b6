"""The trace formats, recognised by the content of a file."""

from pathlib import Path

from stageline.errors import BadInput
from stageline.workload.formats.azure import AzureFormat
from stageline.workload.formats.bailian import BailianFormat
from stageline.workload.formats.base import FileHead, TraceFormat
from stageline.workload.formats.burstgpt import BurstGptFormat
from stageline.workload.formats.llmservingsim import LlmServingSimFormat
from stageline.workload.formats.mooncake import MooncakeFormat
from stageline.workload.formats.native import NativeFormat
from stageline.workload.formats.sharegpt import ShareGptFormat
from stageline.workload.formats.vidur import VidurFormat
from stageline.workload.lines import TraceFile

TRACE_FORMATS: tuple[type[TraceFormat], ...] = (
    AzureFormat,
    BurstGptFormat,
    VidurFormat,
    NativeFormat,
    BailianFormat,
    MooncakeFormat,
    LlmServingSimFormat,
    ShareGptFormat,
)


def open_trace(path: Path) -> TraceFormat:
    """Opens a trace and recognises its format. Raises BadInput when it can't be read or has none of TRACE_FORMATS."""
    file = TraceFile(path)
    try:
        text = file.head()
    except OSError as error:
        raise BadInput(f"workload {path}", None, f"can't be read: {error.strerror}", "give a file") from None
    head = FileHead.of(text)
    for candidate in TRACE_FORMATS:
        if candidate.recognises(head):
            return candidate(file)
    file.close()
    known = ", ".join(f.name for f in TRACE_FORMATS)
    if not head.first:
        raise BadInput(f"workload {path}", None, "the file is empty", f"give a trace in one of: {known}")
    raise BadInput(f"workload {path}", text[:60], "not in a known trace format", f"known formats: {known}")
