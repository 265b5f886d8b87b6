"""Since when a replica's stages may be idle, as its router knows it (rule 7). Times in ns."""


class IdleStamps:
    """The stamps that the next microbatch of a replica will carry."""

    __slots__ = ("_empty_since_ns", "_empty_stamp_ns", "_transfer_since_ns", "_transfer_stamp_ns", "credit_since_ns",
                 "had_work", "work_since_ns")  # fmt: skip

    def __init__(self) -> None:
        self.had_work = False  # when the replica last formed
        self.work_since_ns = 0
        self.credit_since_ns = 0
        self._empty_since_ns: int | None = None  # when the last request left; None once there was work
        self._empty_stamp_ns = 0
        self._transfer_since_ns: int | None = None  # since when all requests wait for KV from elsewhere
        self._transfer_stamp_ns = 0

    def looked(self, now_ns: int, *, work: bool) -> None:
        """The replica is about to form."""
        if not work:
            return
        if not self.had_work:
            self.work_since_ns = now_ns
            transfer, empty = self._transfer_since_ns, self._empty_since_ns
            self._transfer_stamp_ns = now_ns if transfer is None else transfer
            self._empty_stamp_ns = self._transfer_stamp_ns if empty is None else empty
        self._empty_since_ns = self._transfer_since_ns = None

    def dispatched(self, now_ns: int) -> None:
        """A microbatch has left; what it left behind is work from now on."""
        self.work_since_ns = self._empty_stamp_ns = self._transfer_stamp_ns = now_ns

    def emptied(self, now_ns: int) -> None:
        """The last request has left."""
        self._empty_since_ns, self._transfer_since_ns = now_ns, None

    def wait_for_kv(self, now_ns: int) -> None:
        """All requests wait for KV from elsewhere."""
        if self._transfer_since_ns is None:
            self._transfer_since_ns = now_ns

    def of_next(self) -> tuple[int, int, int, int]:
        """`work_since_ns`, `empty_since_ns`, `credit_since_ns` and `transfer_wait_ns` of the next microbatch."""
        wait_ns = self.work_since_ns - self._transfer_stamp_ns
        return self.work_since_ns, self._empty_stamp_ns, self.credit_since_ns, wait_ns
