"""What `stageline up` prints at its end: commands to type now."""

import shlex

import msgspec

from stageline.cluster.local import LocalOptions


def next_steps(grpc: str, door: str, options: LocalOptions) -> list[str]:
    """What to type now, each line as it stands; without a door there are no live clients. A key is read from the
    environment: what is printed may be read by others.
    """
    files = msgspec.structs.asdict(options.tls)
    flags = "".join(f" --tls-{name} {shlex.quote(path)}" for name, path in files.items() if path)
    lines = []
    if door:
        trust = f" --cacert {shlex.quote(options.tls.ca)}" if options.tls.ca else ""
        key = ' -H "authorization: Bearer $STAGELINE_API_KEY"' if options.api_key else ""
        ask = '{"prompt": "hello", "max_tokens": 16}'
        lines.append(f"next: curl{trust}{key} -H 'content-type: application/json' {door}/v1/completions -d '{ask}'")
        load = "poisson:rate=2,requests=20,input=100,output=20"
        lines.append(f"next: stageline load --url {door} --workload {load}{flags}")
    lines.append(f"next: stageline top {grpc}{flags}")
    lines.append(f"next: stageline run PLAN --cluster {grpc} --workload ...{flags}")
    return lines
