"""Who may call, and how often: clients' API keys and their rate limit."""

import hmac
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable

from stageline.errors import BadInput, Busy, Unauthenticated

_MAX_CLIENTS = 1 << 16  # whose last calls are remembered
_PERIODS_S = {"s": 1, "m": 60, "h": 3600}
_MOST = 10**9


class RateLimited(Busy):
    """The key has used up its calls; `retry_after_s` until it may make the next one."""

    def __init__(self, limit: str, retry_after_s: float) -> None:
        self.retry_after_s = math.ceil(retry_after_s)
        super().__init__(f"this key may make {limit} calls; the next one is possible in {self.retry_after_s} s")


class AccessControl:
    """Checks keys and counts calls. `api_keys`: separated by commas; empty: no key is required.

    `rate_limit` is such as 60/m: so many calls at once, and as many again in that time. Without keys it counts by the
    client's address. Empty: no limit. Raises BadInput.
    """

    def __init__(
        self, api_keys: str = "", rate_limit: str = "", *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.keys = tuple(key for key in (part.strip() for part in api_keys.split(",")) if key)
        self.rate_limit, self._now_s = rate_limit, now_s
        self._most, self._period_s = _parsed(rate_limit) if rate_limit else (0, 0)
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key → calls not yet made up for, since

    def check(self, authorization: str) -> str:
        """The key in the header or gRPC metadata `authorization`; "" where none is required.

        Raises Unauthenticated.
        """
        if not self.keys:
            return ""
        given = authorization.removeprefix("Bearer ").strip()
        encoded = given.encode("utf-8", "surrogateescape")
        if sum(hmac.compare_digest(encoded, key.encode()) for key in self.keys) == 0:  # as long for every key
            raise Unauthenticated("Incorrect API key provided; send it as Authorization: Bearer KEY.")
        return given

    def admit(self, authorization: str, client: str) -> None:
        """One more call of the key, or of the client's address. Raises Unauthenticated or RateLimited."""
        name = self.check(authorization) or client
        if not self.rate_limit:
            return
        now_s = self._now_s()
        spent, since_s = self._spent.pop(name, (0.0, now_s))
        spent = max(0.0, spent - (now_s - since_s) * self._most / self._period_s)
        over = spent + 1 - self._most
        self._spent[name] = (spent if over > 0 else spent + 1, now_s)
        if len(self._spent) > _MAX_CLIENTS:
            self._spent.popitem(last=False)
        if over > 0:
            raise RateLimited(self.rate_limit, over * self._period_s / self._most)


def _parsed(text: str) -> tuple[int, int]:
    """Calls, and the seconds in which they may be made."""
    found = re.fullmatch(r"([0-9]{1,10})/([smh])", text)
    if found is None or not 1 <= int(found[1]) <= _MOST:
        raise BadInput("--rate-limit", text, "not a number of calls per s, m or h", "write it like 60/m")
    return int(found[1]), _PERIODS_S[found[2]]
