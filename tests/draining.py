"""Taking everything out of a workload."""

from stageline.engine.types import Request
from stageline.workload import DescribedWorkload


def take(source: DescribedWorkload) -> Request:
    """The next request; a workload without cancellations has nothing else."""
    request = source.take()
    assert isinstance(request, Request)
    return request


def drain(source: DescribedWorkload) -> list[Request]:
    """All requests in the order of arrival."""
    requests = []
    while source.next_arrival_ns() is not None:
        requests.append(take(source))
    return requests
