"""Trials of a search on a Dask cluster: `pip install stageline[dask]`, the same version on every worker."""

from collections.abc import Iterator, Sequence

from stageline.api.trials import Candidate, Trial, run_trial
from stageline.errors import RunFailed, Unavailable, UsageError

SCHEDULER_S, WORKERS_S = 10, 30


def run_trials_on_dask(address: str, candidates: Sequence[Candidate]) -> Iterator[Trial]:
    """Trials as they finish.

    Raises UsageError without Dask, Unavailable without a scheduler or its workers, RunFailed when a worker fails.
    """
    try:
        from distributed import Client, as_completed  # noqa: PLC0415  (an extra, and slow to load)
    except ImportError:
        raise UsageError("--scheduler needs Dask: pip install 'stageline[dask]'") from None
    try:
        client = Client(address, timeout=SCHEDULER_S, set_as_default=False)
    except (OSError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise Unavailable(
            f"--scheduler {address}: no Dask scheduler answers ({why}); start one: dask scheduler"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError:
            raise Unavailable(f"--scheduler {address}: no workers; start some: dask worker {address}") from None
        futures = [client.submit(run_trial, candidate, pure=False) for candidate in candidates]
        for future in as_completed(futures, loop=client.loop):
            failure = future.exception()
            if failure is not None:
                hint = "workers need this version of stageline, and the workload's file under the same path"
                raise RunFailed(f"--scheduler {address}: a worker failed: {failure}; {hint}")
            yield future.result()
