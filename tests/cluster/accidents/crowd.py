"""Clients that ask all the time, each kind of them in its own way, and count what became of their requests."""

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections import Counter

import aiohttp

PATIENCE_S = 40.0  # a call that takes longer is a failure of the cluster
USERS = 8
_BACKOFF_S = 0.05


class Crowd:
    """A closed loop of users. `tally` counts calls by how they ended:

    `finished`; `failed` after they were taken; `refused`; `left` by their client after they were taken; `unsure`: the
    connection was lost, or left, before the server said anything; `unreached`: nobody listened; `cut`: the server
    vanished in mid-reply. `wrong` lists what no client may see.
    """

    def __init__(self, address: str, draw: random.Random) -> None:
        self.address, self._draw = address, draw
        self.tally: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.refusal = ""  # the latest
        self._open = False
        self._users: list[asyncio.Task[None]] = []
        self._kinds = (self._streams, self._whole, self._leaves, self._gives_up, self._vanishes, self._slow)

    async def start(self) -> None:
        """The users come; return when some of them were served."""
        self._open, served = True, self.tally["finished"] + 2
        self._users = [asyncio.create_task(self._user()) for _ in range(USERS)]
        while self.tally["finished"] < served:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Every user ends the call that it makes."""
        self._open = False
        await asyncio.gather(*self._users)

    async def ask(self, tokens: int) -> dict[str, float]:
        """One streamed reply; its usage. Raises AssertionError when it is not served."""
        async with aiohttp.ClientSession() as session:
            usage, error = await self._read(session, tokens)
        assert usage and not error, f"a request was not served: {error} {self.refusal}"
        self.tally["finished"] += 1
        return usage

    async def _user(self) -> None:
        while self._open:
            kind = self._draw.choice(self._kinds)
            tokens = self._draw.randint(4, 40)
            try:
                async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
                    outcome = await kind(session, tokens)
            except TimeoutError:
                self.wrong.append(f"a client that {kind.__name__} waited for {PATIENCE_S:g} s")
                outcome = "unsure"
            except aiohttp.ClientConnectorError:
                outcome = "unreached"
            except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError):
                outcome = "unsure"
            self.tally[outcome] += 1
            if outcome not in ("finished", "left"):
                await asyncio.sleep(_BACKOFF_S)

    def _post(self, session: aiohttp.ClientSession, tokens: int, *, stream: bool):
        ask = {"prompt": [1] * self._draw.randint(1, 60), "max_tokens": tokens, "stream": stream}
        if stream:
            ask["stream_options"] = {"include_usage": True}
        return session.post(f"http://{self.address}/v1/completions", json=ask)

    async def _read(self, session: aiohttp.ClientSession, tokens: int, pause_s: float = 0) -> tuple[dict, str]:
        """The usage of a streamed reply, and the error that ended it."""
        usage, error, seen = {}, "", 0
        async with self._post(session, tokens, stream=True) as reply:
            if reply.status != 200:
                return {}, self._refusal(reply.status, await reply.text())
            with contextlib.suppress(aiohttp.ClientPayloadError):
                async for line in reply.content:
                    if not line.startswith(b"data: {"):
                        continue
                    part = json.loads(line[6:])
                    seen += bool(part.get("choices"))
                    usage = part.get("usage") or usage
                    error = part["error"]["message"] if "error" in part else error
                    await asyncio.sleep(pause_s)
        if usage and seen != tokens:
            self.wrong.append(f"{seen} tokens came of {tokens}")
        return usage, error or ("" if usage else "cut")

    def _refusal(self, status: int, text: str) -> str:
        message = json.loads(text)["error"]["message"]
        if status not in (429, 503) or not message.rstrip(": "):
            self.wrong.append(f"status {status}: {message or '(no reason)'}")
        self.refusal = f"{status}: {message}"
        return "failed" if "broke off" in message else "refused"

    async def _outcome(self, session: aiohttp.ClientSession, tokens: int, pause_s: float = 0) -> str:
        usage, error = await self._read(session, tokens, pause_s)
        if usage:
            return "finished"
        return error if error in ("refused", "cut") else "failed"

    async def _streams(self, session: aiohttp.ClientSession, tokens: int) -> str:
        return await self._outcome(session, tokens)

    async def _slow(self, session: aiohttp.ClientSession, tokens: int) -> str:
        return await self._outcome(session, min(tokens, 15), pause_s=0.05)

    async def _whole(self, session: aiohttp.ClientSession, tokens: int) -> str:
        async with self._post(session, tokens, stream=False) as reply:
            text = await reply.text()
            if reply.status == 200:
                assert json.loads(text)["usage"]["completion_tokens"] == tokens
                return "finished"
            return self._refusal(reply.status, text)

    async def _leaves(self, session: aiohttp.ClientSession, tokens: int) -> str:
        async with self._post(session, 10 * tokens, stream=True) as reply:
            if reply.status != 200:
                return self._refusal(reply.status, await reply.text())
            with contextlib.suppress(aiohttp.ClientPayloadError):
                for _ in range(3):
                    await reply.content.readline()
        return "left"

    async def _gives_up(self, session: aiohttp.ClientSession, tokens: int) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._draw.uniform(0.001, 0.03)):
                async with self._post(session, tokens, stream=True) as reply:
                    await reply.content.readline()
        return "unsure"

    async def _vanishes(self, session: aiohttp.ClientSession, tokens: int) -> str:
        """A plain socket that is reset after the first event."""
        host, _, port = self.address.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return "unreached"
        body = json.dumps({"prompt": "x", "max_tokens": 10 * tokens, "stream": True})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        try:
            line = await reader.readline()
        finally:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
        if not line:
            return "unsure"
        return "left" if b"200" in line else "refused"
