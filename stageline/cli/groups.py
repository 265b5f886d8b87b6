"""The groups of flags, in the order in which `--help` shows them, and how a flag is written."""

from cyclopts import Group, Parameter

WORKLOAD = Group.create_ordered("Workload")
SERVER = Group.create_ordered("Server")
CALLS = Group.create_ordered("Calls")
QUESTION = Group.create_ordered("Question")
TRIALS = Group.create_ordered("Trials")
MODEL = Group.create_ordered("Model")
DEVICES = Group.create_ordered("Devices and parallelism")
MEMORY = Group.create_ordered("Memory and KV cache")
NETWORK = Group.create_ordered("Network")
COST = Group.create_ordered("Cost")
MICROBATCHES = Group.create_ordered("Microbatches")
TRAINING = Group.create_ordered("Training")
SCHEDULING = Group.create_ordered("Scheduling")
SPECULATION = Group.create_ordered("Speculative decoding")
LIVE = Group.create_ordered("Live requests")
SERVERS = Group.create_ordered("Servers")
DOCKER = Group.create_ordered("Docker")
CLUSTER = Group.create_ordered("Cluster")
SECURITY = Group.create_ordered("Security")
MEASURE = Group.create_ordered("Measurement")
TRACES = Group.create_ordered("Traces")
OUTPUT = Group.create_ordered("Output")


def flag(text: str, *names: str) -> Parameter:
    """A flag with its help, and other names for it."""
    return Parameter(name=names or None, help=text, negative="")
