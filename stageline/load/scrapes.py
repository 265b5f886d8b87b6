"""The /metrics of a server before, while and after a workload runs: metrics.jsonl, one scrape per line."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, TextIO

import aiohttp
import msgspec

from stageline.errors import UsageError
from stageline.runtime.samples import Samples, parse

METRICS_FILE = "metrics.jsonl"
Phase = Literal["before", "during", "after"]
_ANSWER_S = 10.0
_MAX_BYTES = 1 << 26


class Scrape(msgspec.Struct, frozen=True):
    """One line of metrics.jsonl. `text` is what the server answered; buckets of histograms are left out of `during`."""

    at_ns: int  # wall time since the start of the observation
    phase: Phase
    text: str

    def samples(self) -> Samples:
        """The samples. Raises ValueError for text that is no exposition."""
        return parse(self.text.encode())


class Scraper:
    """Scrapes one address and keeps what it answers. `failure`: why the last scrape gave nothing, empty if it did."""

    def __init__(self, url: str, file: TextIO, now_ns: Callable[[], int], *, api_key: str = "") -> None:
        self.url = url
        self.failure = ""
        self.scrapes = 0
        self._file, self._now_ns = file, now_ns
        self._start_ns = now_ns()
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def scrape(self, session: aiohttp.ClientSession, phase: Phase) -> None:
        """Ask once; a server that has no such page, or none that can be read, is noted in `failure`."""
        self.failure = ""
        try:
            async with asyncio.timeout(_ANSWER_S), session.get(self.url, headers=self._headers) as response:
                if response.status != 200:
                    self.failure = f"HTTP {response.status}"
                    return
                text = (await response.content.read(_MAX_BYTES)).decode("utf-8", "replace")
            parse(text.encode())
        except TimeoutError:
            self.failure = f"no answer within {_ANSWER_S:g} s"
        except (aiohttp.ClientError, OSError) as error:
            self.failure = str(error) or type(error).__name__
        except ValueError as error:
            self.failure = f"not in Prometheus' text format: {error}"
        else:
            kept = text if phase != "during" else _without_buckets(text)
            row = Scrape(self._now_ns() - self._start_ns, phase, kept)
            self._file.write(msgspec.json.encode(row).decode() + "\n")
            self.scrapes += 1

    async def every(self, session: aiohttp.ClientSession, seconds: float) -> None:
        """Scrape until it is cancelled."""
        while True:
            await asyncio.sleep(seconds)
            await self.scrape(session, "during")


@asynccontextmanager
async def scraping(
    url: str, directory: Path, now_ns: Callable[[], int], *, seconds: float, api_key: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Scraper]:  # fmt: skip
    """Scrapes `url` before and after the block, and while it runs. Raises UsageError if the file can't be written."""
    connector = aiohttp.TCPConnector(ssl=tls or True)
    with _opened(directory) as file:
        async with aiohttp.ClientSession(connector=connector) as session:
            scraper = Scraper(url, file, now_ns, api_key=api_key)
            await scraper.scrape(session, "before")
            task = asyncio.create_task(scraper.every(session, seconds))
            try:
                yield scraper
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await scraper.scrape(session, "after")


def _opened(directory: Path) -> TextIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / METRICS_FILE).open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"-o {directory}: can't be written: {error.strerror}; give another directory") from None


def read_scrapes(directory: Path) -> list[Scrape]:
    """The scrapes of an observation, in order; empty where the server had none."""
    with (directory / METRICS_FILE).open("rb") as lines:
        return [msgspec.json.decode(line, type=Scrape) for line in lines]


def _without_buckets(text: str) -> str:
    kept = (line for line in text.splitlines() if not line.startswith("#") and "_bucket" not in line.partition("{")[0])
    return "\n".join(kept) + "\n"
