"""A load generator to copy: evenly spaced arrivals with nothing but the standard library, one thread per request.

    python examples/load_stdlib.py --url http://localhost:8000 --rate 4 --requests 20

Sends prompts as token ids and reads the stream of events line by line. Latency counts from the intended start.
"""

import argparse
import http.client
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit


def connect(url: str) -> http.client.HTTPConnection:
    """A connection of its own for every request."""
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "localhost", parts.port or 80, timeout=300)


def first_model(url: str) -> str:
    """The model that the server lists first."""
    connection = connect(url)
    connection.request("GET", "/v1/models")
    model: str = json.load(connection.getresponse())["data"][0]["id"]
    connection.close()
    return model


def call(url: str, model: str, index: int, intended: float, tokens: int) -> tuple[float, float, int]:
    """One streamed completion; (TTFT, E2E, chunks). Raises when it is refused or cut off."""
    body = {"model": model, "prompt": [1000 + index] * 64, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    connection = connect(url)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(f"HTTP {reply.status}: {reply.read(200)!r}")
    first, chunks = 0.0, 0
    for line in reply:
        if line.startswith(b"data: [DONE]"):
            connection.close()
            return first - intended, time.perf_counter() - intended, chunks
        if line.startswith(b"data:") and any(choice["text"] for choice in json.loads(line[5:])["choices"]):
            first = first or time.perf_counter()
            chunks += 1
    raise RuntimeError(f"the stream was cut after {chunks} chunks")


def main() -> None:
    """Sends them all and prints percentiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--rate", type=float, default=4, help="requests per second")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32)
    flags = parser.parse_args()
    model = first_model(flags.url)
    with ThreadPoolExecutor(max_workers=flags.requests) as threads:
        start, calls = time.perf_counter(), []
        for index in range(flags.requests):
            due = start + index / flags.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            calls.append(threads.submit(call, flags.url, model, index, due, flags.tokens))
    failed = [error for future in calls if (error := future.exception())]
    good = [future.result() for future in calls if not future.exception()]
    print(f"{len(good)} of {len(calls)} finished, {sum(g[2] for g in good)} chunks")
    for name, values in (("TTFT", [g[0] for g in good]), ("E2E", [g[1] for g in good])):
        if values:
            print(f"{name}: median {statistics.median(values):.3f} s, largest {max(values):.3f} s")
    for error in failed[:3]:
        print(f"failed: {error}")


if __name__ == "__main__":
    main()
