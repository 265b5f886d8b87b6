"""A gap's causes in the order in which they follow each other in time (rule 7)."""

from collections.abc import Iterator

from stageline.report.events import Gap

ORDER = ("fill", "fault", "starved", "empty", "credit", "kv_blocked", "upstream", "hop", "drain")


def ordered_pieces(gap: Gap) -> Iterator[tuple[str, int, int]]:
    """Cause, begin and end of each part that is not empty."""
    at = gap.start_ns
    for cause in sorted(gap.idle_ns, key=ORDER.index):
        begin, at = at, at + gap.idle_ns[cause]
        if at > begin:
            yield cause, begin, at
