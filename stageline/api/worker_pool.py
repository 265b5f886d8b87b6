"""Processes that run trials. An interrupted command ends them at once, and none of them says a word about it."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Pool(ProcessPoolExecutor):
    """Its processes never see Ctrl-C, which a terminal sends to them too: the one that started them decides."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See Executor; processes start here, and keep the signal mask that they start with."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """Ends the processes in the middle of their trials. Returns when they are gone and every future is done."""
        for process in (self._processes or {}).values():
            process.terminate()
        self.shutdown(cancel_futures=True)


@contextmanager
def worker_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Up to `jobs` processes, which start when trials do and stay for the next ones."""
    pool = _Pool(jobs, mp_context=get_context("spawn"))
    try:
        yield pool
    except BaseException:
        pool.end()
        raise
    pool.shutdown()
