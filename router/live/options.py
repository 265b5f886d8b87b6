"""How live sessions are served."""

from pathlib import Path

import msgspec

from router.live.watchdog import DEADLINE_NS
from stageline.wire.frames import PayloadMode


class LiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a router's live sessions."""

    seed: int = 0
    dilation: float = 1.0
    quantum_ns: int = 1_000_000  # wall time
    tolerance_ns: int = 20_000_000  # wall time that frames may be late before the clock slips
    deadline_ns: int = DEADLINE_NS  # wall time for which a stage may owe an answer or a frame
    queue: int = 1000  # requests that may wait for admission
    payload: PayloadMode = "size"
    record: Path | None = None
    retries: int = 0  # how often a session may be done again after the loss of a stage
