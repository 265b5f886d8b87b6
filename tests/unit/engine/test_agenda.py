"""The agenda against a plain minimum, and what finding the next event costs as replicas are added."""

import random

from stageline.engine.agenda import Agenda, Event, SoloAgenda
from stageline.engine.conductor import Conductor
from stageline.engine.inprocess import drive, make_pipelines
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.served import one_pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import NEVER
from stageline.testing import Ignoring, UsersWorkload, request, uniform_plan


def check(agenda: Agenda, events: dict[int, tuple[Event, bool]]) -> None:
    known = [e for e, is_known in events.values() if is_known]
    assert agenda.known() == min(known, default=None)
    assert agenda.unknown_ns() == min((e[0] for e, is_known in events.values() if not is_known), default=NEVER)
    last = (NEVER, True, 0)
    assert agenda.precedes(last) == bool(known)
    assert not known or not agenda.precedes(min(known))


def test_an_agenda_names_the_earliest_of_what_was_put_last() -> None:
    draw = random.Random(5)
    for replicas in (1, 1, 2, 7):
        agendas = [Agenda(replicas), *([SoloAgenda()] if replicas == 1 else [])]
        for agenda in agendas:
            events: dict[int, tuple[Event, bool]] = {}
            for _ in range(400):
                r = draw.randrange(replicas)
                event = (draw.choice([draw.randrange(20), NEVER]), draw.random() < 0.5, r)
                known = draw.random() < 0.6
                agenda.put(event, known)
                events.pop(r, None)
                if event[0] < NEVER:
                    events[r] = event, known
                check(agenda, events)
                first = agenda.known()
                if first is not None and draw.random() < 0.3:
                    agenda.take()
                    del events[first[2]]
                    check(agenda, events)


class Counting(Conductor):
    """Counts how often it looks at a replica."""

    looks = 0

    def _event(self, r: int) -> tuple[Event, bool]:
        self.looks += 1
        return super()._event(r)


def looks_per_microbatch(replicas: int) -> float:
    plan = uniform_plan(stages=2, replicas=replicas)
    users = UsersWorkload([[request()] * 4] * 2 * replicas, [0] * 2 * replicas, think_ns=0)
    router = Router(one_pool(Route(plan), Scheduling(microbatch=4)), 0, Ignoring())
    conductor = Counting(router, users)
    drive(conductor, make_pipelines(router.fleet, 0))
    assert router.finished == 8 * replicas
    return conductor.looks / sum(r.formed for r in router.replicas)


def test_a_closed_loop_does_not_look_at_every_replica_for_every_event() -> None:
    assert looks_per_microbatch(100) < 1.2 * looks_per_microbatch(10)
