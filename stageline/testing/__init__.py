"""The test kit: small plans, workloads and observers, for tests of policies and of everything else that runs a plan.

A test of a queueing policy:

    from stageline.testing import request, run_plan, uniform_plan

    class LongestFirst:
        def key(self, request):
            return -request.prompt_tokens

    def test_the_longest_prompt_goes_first():
        plan = uniform_plan(stages=4, service_ns=100)
        waiting = [request(i, prompt_tokens=tokens) for i, tokens in enumerate([4, 9, 16])]
        run = run_plan(plan, waiting, queueing=LongestFirst, microbatch=1, credits=1)
        assert run.admitted == [2, 1, 0]

Runs take place in this process, in emulated time: they need no servers, and every run of the same plan, requests,
settings and seed gives the same records.
"""

from stageline.testing.observers import DigestObserver, Ignoring, Recorder, Token
from stageline.testing.plans import uniform_plan
from stageline.testing.runs import Run, run_fleet, run_plan
from stageline.testing.workloads import ListWorkload, UsersWorkload, request

__all__ = [
    "DigestObserver",
    "Ignoring",
    "ListWorkload",
    "Recorder",
    "Run",
    "Token",
    "UsersWorkload",
    "request",
    "run_fleet",
    "run_plan",
    "uniform_plan",
]
