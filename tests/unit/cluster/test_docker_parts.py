"""The containers of a cluster in Docker, without a Docker daemon."""

from stageline.cluster.docker_parts import DockerOptions, fingerprint, router_part, stage_parts
from stageline.engine.fleet import Fleet, Pool
from stageline.runtime.deployment import Deployment
from tests.cluster.plans import small_plan, with_digest_changed


def test_the_stages_of_a_fleet_are_numbered_through_its_pools() -> None:
    """Each gets the plan of its pool from the router, which has the whole fleet."""
    pools = (Pool(name="small", plan=small_plan(1)), Pool(name="large", plan=small_plan(11, replicas=2)))
    fleet = Deployment(Fleet(pools=pools))
    parts = stage_parts(fleet, DockerOptions())
    assert [part.name for part in parts[:2]] == ["r0-stage-00", "r1-stage-00"]
    assert parts[-1].settings["environment"]["STAGELINE_REPLICA"] == "2"
    router = router_part(fleet, DockerOptions(), "volume").settings["environment"]
    assert router["STAGELINE_STAGES"] == "r{replica}-stage-{stage:02d}:50051"


def test_every_stage_has_its_own_name_and_the_common_alias() -> None:
    parts = stage_parts(Deployment(small_plan(2, replicas=2)), DockerOptions())
    names = ["r0-stage-00", "r0-stage-01", "r1-stage-00", "r1-stage-01"]
    assert [part.name for part in parts] == names
    assert [part.aliases for part in parts] == [(name, "stages") for name in names]
    assert parts[3].settings["environment"]["STAGELINE_STAGE"] == "1"
    assert parts[3].settings["environment"]["STAGELINE_REPLICA"] == "1"


def test_the_router_publishes_the_ports_of_its_options() -> None:
    options = DockerOptions(http_port=-1, grpc_port=0, metrics_port=9999, publish="0.0.0.0", router={"seed": "7"})
    settings = router_part(Deployment(small_plan(2)), options, "volume").settings
    assert settings["ports"] == {"50051/tcp": ("0.0.0.0",), "9090/tcp": ("0.0.0.0", 9999)}
    assert settings["environment"]["STAGELINE_STAGES"] == "stage-{stage:02d}:50051"
    assert settings["environment"]["STAGELINE_SEED"] == "7"


def test_a_fingerprint_distinguishes_plans_images_and_options() -> None:
    plan, options = small_plan(2), DockerOptions()
    marks = {
        fingerprint(Deployment(plan), options, "one"),
        fingerprint(Deployment(plan), options, "two"),
        fingerprint(Deployment(plan), DockerOptions(payload="size"), "one"),
        fingerprint(Deployment(with_digest_changed(plan)), options, "one"),
    }
    assert len(marks) == 4
    assert fingerprint(Deployment(small_plan(2)), DockerOptions(), "one") in marks
