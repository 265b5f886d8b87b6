"""A window of frames: how many frames of a replica are under way, so that dispatches gather while it is full."""

from collections import deque


class FrameWindow:
    """A frame has returned when its last microbatch has. `frames` 0: no limit. Holds back bytes, never decisions."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self._left: deque[int] = deque()  # microbatches of each frame that have not returned; they return in order

    @property
    def open(self) -> bool:
        """Whether one more frame may leave of its own accord."""
        return not self.frames or len(self._left) < self.frames

    def sent(self, microbatches: int) -> None:
        """A frame has left."""
        self._left.append(microbatches)

    def returned(self, microbatches: int) -> None:
        """So many microbatches have come back, oldest first."""
        left = self._left
        while microbatches:
            step = min(left[0], microbatches)
            left[0] -= step
            microbatches -= step
            if not left[0]:
                left.popleft()
