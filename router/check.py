"""`python -m router.check`: exit code 0 while the router beside it, and with it every stage, is healthy.

For containers: it reads the same variables as the router, certificates among them.
"""

import asyncio
import os
import sys

from router.settings import RouterSettings
from stageline.errors import StagelineError
from stageline.runtime.settings import read_settings
from stageline.wire.environment import prepare
from stageline.wire.tls import TlsFiles

PROGRAM = "router.check"
_ANSWER_S = 3.0


def start() -> int:
    """Returns the exit code."""
    prepare()
    try:
        settings = read_settings(RouterSettings, sys.argv[1:], os.environ, PROGRAM)
        return 0 if asyncio.run(healthy(settings)) else 1
    except StagelineError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return error.exit_code


async def healthy(settings: RouterSettings) -> bool:
    """Asks over loopback; a server without an authority vouches for itself. Raises Unavailable, or what is wrong."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415  (imports grpc, which reads the environment)

    from stageline.runtime.calls import answer  # noqa: PLC0415
    from stageline.wire.channels import Dialer  # noqa: PLC0415

    files, address = settings.tls, f"127.0.0.1:{settings.grpc_port}"
    # Without a certificate its own port is plain, whomever it believes elsewhere.
    dialer = Dialer(TlsFiles(files.cert, files.key, files.ca or files.cert) if files.cert else None)
    async with dialer.channel(dialer.resolved(address)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        call = stub.Check(health_pb2.HealthCheckRequest(), timeout=_ANSWER_S)  # type: ignore[attr-defined]
        reply = await answer(call, f"router at {address}")
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    sys.exit(start())
