"""Since when a replica's stages may be idle, as its router knows it (rule 7). Times in ns."""


class IdleStamps:
    """The stamps that the next microbatch of a replica will carry."""

    __slots__ = ("_came_to_none", "_empty_stamp_ns", "_had_own", "_had_own_before", "_noted_ns", "_ran_out_ns",
                 "_transfer_since_ns", "_transfer_stamp_ns", "credit_since_ns", "had_work",
                 "work_since_ns")  # fmt: skip

    def __init__(self) -> None:
        self.had_work = False  # when the replica last formed
        self.work_since_ns = 0
        self.credit_since_ns = 0
        self._ran_out_ns = 0  # when the last request of its own left
        self._came_to_none = False  # a request has come since the last formation, when there was none of its own
        self._empty_stamp_ns = 0
        self._transfer_since_ns: int | None = None  # since when there are requests that all wait for KV from elsewhere
        self._transfer_stamp_ns = 0
        self._noted_ns = -1  # when it was last said who is here
        self._had_own = self._had_own_before = False  # requests of its own, then and when it was said before

    def came(self, *, to_none: bool) -> None:
        """A request has come, or its KV has."""
        self._came_to_none |= to_none

    def looked(self, now_ns: int, *, work: bool) -> None:
        """The replica is about to form."""
        if work and not self.had_work:
            self.work_since_ns = now_ns
            since = self._transfer_since_ns
            self._transfer_stamp_ns = now_ns if since is None else since
            self._empty_stamp_ns = self._ran_out_ns if self._came_to_none else self._transfer_stamp_ns
        self._came_to_none = False

    def dispatched(self, now_ns: int) -> None:
        """A microbatch has left; what it left behind is work from now on."""
        self.work_since_ns = self._empty_stamp_ns = self._transfer_stamp_ns = now_ns

    def ran_out(self, now_ns: int) -> None:
        """The last request of its own has left."""
        self._ran_out_ns = now_ns

    def note(self, now_ns: int, *, all_wait: bool, own: bool) -> None:
        """The replica has formed: whether requests are here that all wait for KV from elsewhere, or some of its own."""
        if not all_wait:
            self._transfer_since_ns = None
        elif self._transfer_since_ns is None:
            self._transfer_since_ns = now_ns
        if now_ns > self._noted_ns:
            self._had_own_before, self._noted_ns = self._had_own, now_ns
        self._had_own = own

    def had_own_before(self, now_ns: int) -> bool:
        """Whether there were requests of its own when it formed last before `now_ns`."""
        return self._had_own if now_ns > self._noted_ns else self._had_own_before

    def of_next(self) -> tuple[int, int, int, int]:
        """`work_since_ns`, `empty_since_ns`, `credit_since_ns` and `transfer_wait_ns` of the next microbatch."""
        wait_ns = self.work_since_ns - self._transfer_stamp_ns
        return self.work_since_ns, self._empty_stamp_ns, self.credit_since_ns, wait_ns
