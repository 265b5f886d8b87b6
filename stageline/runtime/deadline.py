"""How long a stage may owe an answer or a frame before it counts as lost."""

from stageline.errors import BadInput
from stageline.units import NS_PER_S, parse_duration_ns

DEFAULT = "10s"


def deadline_ns(text: str) -> int:
    """The deadline that `--stage-deadline` gives. Raises BadInput."""
    found_ns = parse_duration_ns(text, "--stage-deadline")
    if found_ns < NS_PER_S:
        raise BadInput("--stage-deadline", text, "shorter than 1s", "a busy host needs more; give 1s or more")
    return found_ns
