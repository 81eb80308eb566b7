"""The one place that asks the network: time-outs, one retry, answers that are kept a while, and no leaked token.

What was made of an answer is kept in memory, and asked for again when it is older than the caller allows. No message
holds a query, a header or a word of an answer.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from greenlove_tracker.machine.forks import forks_wait, start_thread
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError

_STATUS_WORDS = {401: ", the token is refused", 403: ", not allowed", 404: ", not found", 429: ", too many requests"}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<host>[\w.-]+|\[[0-9a-f:]+\])(:\d{1,5})?(/[^\s?#@]*)?", re.ASCII)
_HEADERS = {"Accept": "application/json", "User-Agent": "greenlove_tracker"}


Query = Sequence[tuple[str, str]]
Headers = Mapping[str, str]


class RequestFailed(GreenloveError):  # noqa: N818  # one of several that are tried
    """A service did not answer as it should."""


_KEPT: dict[str, tuple[float, Any]] = {}  # by the question, when it was answered and what, for as long as this process


@dataclass(frozen=True)
class HttpClient:
    """Gets JSON from services; a call ends within ``connect_s`` and ``timeout_s`` in all.

    Attributes:
        timeout_s: for an answer, to its last byte.
        connect_s: for the connection: a network that drops everything is found out sooner.
        utc_s: seconds since the Unix epoch.
    """

    timeout_s: float = 4.0
    connect_s: float = 1.0
    utc_s: Callable[[], float] = time.time

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return datetime.fromtimestamp(self.utc_s(), UTC)

    def get_json(
        self,
        url: str,
        parameters: Query = (),
        *,
        parse: Callable[[Any], Any],
        max_age_s: float,
        headers: Headers | None = None,
    ) -> Any:
        """Return what is parsed of the JSON at an address, or what is kept of it where that is young enough.

        Args:
            url: without a query.
            parameters: of the query.
            parse: makes of the JSON what is kept; what it raises is a failure of the service.
            max_age_s: what is kept and no older is taken without asking.
            headers: to send.

        Raises:
            RequestFailed: where there is no answer.
        """
        question = json.dumps([url, list(parameters), dict(headers or {})])
        known_utc_s, data = _KEPT.get(question, (-math.inf, None))
        if not 0 <= self.utc_s() - known_utc_s <= max_age_s:
            data = self._asked(url, parameters, headers or {}, parse)
            _KEPT[question] = self.utc_s(), data
        return data

    def _asked(self, url: str, query: Query, headers: Headers, parse: Callable[[Any], Any]) -> Any:
        """Ask on a thread: the library bounds neither the look-up of a name nor an answer that comes byte by byte."""
        host = urlsplit(url).hostname
        sent = ask_on_thread("greenlove-http", partial(self._sent, url, query, headers))
        try:
            status, text = sent.result(self.connect_s + self.timeout_s)
        except Exception as error:  # whatever it is, it may hold the address with its query, and so a token
            if "Timeout" in type(error).__name__:
                raise RequestFailed(f"{host} did not answer in time") from None
            raise RequestFailed(f"{host} cannot be reached, or the connection broke") from None
        if status != 200:
            raise RequestFailed(f"HTTP {status}{_STATUS_WORDS.get(status, '')} from {host}")
        try:
            return parse(json.loads(text))
        except Exception:  # whatever the parser stumbles over
            raise RequestFailed(f"the answer of {host} has another shape than expected") from None

    def _sent(self, url: str, query: Query, headers: Headers) -> tuple[int, str]:
        """Return the status and the text of an answer; no redirect is followed."""
        with forks_wait:  # requests takes 60 ms to load, and only a request needs it
            import requests
            from requests.adapters import HTTPAdapter
            from urllib3 import Retry
        again = Retry(
            1,
            connect=0,
            read=False,
            status_forcelist=(408, 500, 502, 503, 504),
            respect_retry_after_header=False,
            raise_on_status=False,
        )
        with requests.Session() as session:
            session.mount(f"{urlsplit(url).scheme}://", HTTPAdapter(max_retries=again))
            response = session.get(
                url,
                params=list(query),
                headers=_HEADERS | dict(headers),
                timeout=(self.connect_s, self.timeout_s),
                allow_redirects=False,
            )
            return response.status_code, response.content.decode("utf-8", "replace")


_Answer = TypeVar("_Answer")


def ask_on_thread(name: str, ask: Callable[[], _Answer]) -> Future[_Answer]:
    """Ask on a thread of its own: one that hangs holds nothing up."""
    answer = Future[_Answer]()

    def work() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # told of by whoever waits for the answer
            answer.set_exception(error)

    no_thread = start_thread(name, work)
    if no_thread:
        answer.set_exception(no_thread)
    return answer


def check_address(url: str, has_secrets: bool = False) -> None:
    """Refuse what is no address of a service, or would carry a token unencrypted.

    Raises:
        UsageError: for such an address.
    """
    parts = _ADDRESS.fullmatch(url)
    if parts is None:
        raise UsageError("that is no address of a service: https://host/path, without a user or a query")
    if has_secrets and parts["scheme"] == "http" and parts["host"] not in _LOOPBACK:
        raise UsageError(f"no token is sent to {parts['host']} unencrypted: give its address with https://")
