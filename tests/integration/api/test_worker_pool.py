"""Processes that run trials: Ctrl-C does not reach them, and ends them in the middle of a trial."""

import multiprocessing
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest

from stageline.api.worker_pool import worker_pool


def test_an_interrupted_block_ends_its_processes() -> None:
    """Each waits for a signal, and would wait for ever; a second trial is queued behind it."""
    before = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt), worker_pool(1) as pool:
        assert signal.SIGINT in pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        futures = [pool.submit(signal.pause) for _ in range(2)]
        started = set(multiprocessing.active_children()) - before
        raise KeyboardInterrupt
    assert [process.exitcode for process in started] == [-signal.SIGTERM]
    assert all(future.cancelled() or isinstance(future.exception(timeout=0), BrokenProcessPool) for future in futures)


def test_a_block_that_ends_waits_for_its_trials() -> None:
    with worker_pool(2) as pool:
        futures = [pool.submit(abs, -number) for number in range(4)]
    assert [future.result() for future in futures] == [0, 1, 2, 3]
