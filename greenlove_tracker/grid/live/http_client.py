"""The one place that asks the network: time-outs, one retry, a small cache on the disk, and no leaked token.

What is kept on the disk is what was made of an answer, never the answer itself: a service may repeat a token in it. It
is asked for again only when it is older than the caller allows; where the service then fails, an older one stands in
and says so. No message holds a query, a header or a word of an answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.files import write_atomically
from greenlove_tracker.forks import forks_wait, start_thread

MOST_STALE_S = 6 * 3600.0
_KEPT_S = 2 * 86400.0  # nothing on the disk is read after this
_ONCE_MORE = (408, 500, 502, 503, 504)
_PASSING = (*_ONCE_MORE, 425, 429)
_STATUS_WORDS = {401: ", the token is refused", 403: ", not allowed", 404: ", not found", 429: ", too many requests"}
_OTHER_SHAPE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<host>[\w.-]+|\[[0-9a-f:]+\])(:\d{1,5})?(/[^\s?#@]*)?", re.ASCII)
_HEADERS = {"Accept": "application/json", "User-Agent": "greenlove_tracker"}


class RequestFailed(GreenloveError):  # noqa: N818  # one of several that are tried
    """A service did not answer as it should.

    Attributes:
        is_passing: it may answer later: a token that is refused stays refused.
    """

    def __init__(self, message: str, is_passing: bool = True) -> None:
        super().__init__(message)
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a service: what was made of it, when it came, and why it is an older one (else empty)."""

    data: Any
    known_utc: datetime
    stale_reason: str = ""


@dataclass(frozen=True)
class HttpClient:
    """Gets JSON from services; a call ends within ``connect_s`` and ``timeout_s`` in all.

    Attributes:
        cache_dir: where answers are kept; None: nowhere.
        timeout_s: for an answer, to its last byte.
        connect_s: for the connection: a network that drops everything is found out sooner.
        utc_s: seconds since the Unix epoch.
    """

    cache_dir: Path | None = None
    timeout_s: float = 4.0
    connect_s: float = 1.0
    utc_s: Callable[[], float] = time.time

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return datetime.fromtimestamp(self.utc_s(), UTC)

    def get_json(
        self,
        url: str,
        parameters: Sequence[tuple[str, str]] = (),
        *,
        parse: Callable[[Any], Any],
        max_age_s: float,
        headers: Mapping[str, str] | None = None,
        has_secrets: bool = False,
    ) -> Answer:
        """Return what is parsed of the JSON at an address, or on the disk where that is young enough.

        Args:
            url: without a query.
            parameters: of the query.
            parse: makes of the JSON what is kept, which JSON can hold; what it raises is a failure of the service.
            max_age_s: what is on the disk and no older is taken without asking; 0: nothing is kept or read.
            headers: to send.
            has_secrets: a parameter or a header is a token: it is sent over https and to no other address.

        Raises:
            RequestFailed: where there is no answer.
            UsageError: for an address that is not http or https, or that would carry a token unencrypted.
        """
        check_address(url, has_secrets)
        path = None
        if self.cache_dir is not None and max_age_s > 0:
            # Another token may have another plan, with other answers: it is in the name, where nobody can read it.
            asked = json.dumps([1, url, list(parameters), dict(headers or {})])
            path = self.cache_dir / f"{hashlib.sha256(asked.encode()).hexdigest()}.json"
        kept = None if path is None else self._read(path)
        if kept is not None and self._age_s(kept.known_utc) <= max_age_s:
            return kept
        try:
            data = self._asked(url, parameters, {**_HEADERS, **(headers or {})}, has_secrets, parse)
        except RequestFailed as failure:
            if kept is not None and failure.is_passing and self._age_s(kept.known_utc) <= MOST_STALE_S:
                return replace(kept, stale_reason=str(failure))
            raise
        answer = Answer(data, self.now())
        if path is not None:
            self._keep(path, answer)
        return answer

    def _asked(
        self,
        url: str,
        query: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        has_secrets: bool,
        parse: Callable[[Any], Any],
    ) -> Any:
        """Ask on a thread: the library bounds neither the look-up of a name nor an answer that comes byte by byte."""
        host, timeout_s = urlsplit(url).hostname, self.connect_s + self.timeout_s
        sent: Future[tuple[int, str]] = Future()

        def work() -> None:
            try:
                sent.set_result(self._sent(url, query, headers, has_secrets))
            except RequestFailed as failure:
                sent.set_exception(failure)

        if (no_thread := start_thread("greenlove-http", work)) is not None:
            raise RequestFailed(f"{host} cannot be asked: {no_thread}")
        try:
            status, text = sent.result(timeout_s)
        except FutureTimeoutError:
            raise RequestFailed(f"{host} did not answer within {timeout_s:g} s") from None
        if status != 200:
            raise RequestFailed(f"HTTP {status}{_STATUS_WORDS.get(status, '')} from {host}", status in _PASSING)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise RequestFailed(f"the answer of {host} is not JSON, or broke off") from None
        try:
            return parse(found)
        except _OTHER_SHAPE:
            raise RequestFailed(f"the answer of {host} has another shape than expected") from None

    def _sent(
        self, url: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str], has_secrets: bool
    ) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        with forks_wait:  # requests takes 60 ms to load, and only a request needs it
            import requests
            from requests.adapters import HTTPAdapter
            from urllib3 import Retry
        host = urlsplit(url).hostname
        again = Retry(
            1,
            connect=0,
            read=False,
            status_forcelist=_ONCE_MORE,
            respect_retry_after_header=False,
            raise_on_status=False,
        )
        # No error is chained: those of requests hold the address with its query, and so may hold a token.
        try:
            with requests.Session() as session:
                session.max_redirects = 3
                session.mount(f"{urlsplit(url).scheme}://", HTTPAdapter(max_retries=again))
                timeouts = self.connect_s, self.timeout_s
                response = session.get(
                    url, params=list(query), headers=headers, timeout=timeouts, allow_redirects=not has_secrets
                )
                return response.status_code, response.content.decode("utf-8", "replace")
        except requests.exceptions.ConnectTimeout:
            raise RequestFailed(f"{host} did not answer within {self.connect_s:g} s") from None
        except requests.exceptions.Timeout:
            raise RequestFailed(f"{host} did not answer within {self.timeout_s:g} s") from None
        except Exception:  # whatever it is, it may hold the address
            raise RequestFailed(f"{host} cannot be reached, or the connection broke") from None

    def _age_s(self, known_utc: datetime) -> float:
        age_s = self.utc_s() - known_utc.timestamp()
        return age_s if age_s >= -60 else math.inf  # of the future: the clock was set, and nothing is known of its age

    def _read(self, path: Path) -> Answer | None:
        try:
            kept = json.loads(path.read_bytes())
            return Answer(kept["data"], datetime.fromtimestamp(float(kept["known_utc_s"]), UTC))
        except (OSError, *_OTHER_SHAPE):
            return None  # not there, or damaged: it is asked for again

    def _keep(self, path: Path, answer: Answer) -> None:
        """Write an answer to the disk; one that cannot be written is asked for again, which is no reason to warn."""
        content = json.dumps({"known_utc_s": answer.known_utc.timestamp(), "data": answer.data}).encode()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in path.parent.glob("[0-9a-f]" * 64 + ".json"):
                if self.utc_s() - old.stat().st_mtime > _KEPT_S:
                    old.unlink(missing_ok=True)
            write_atomically(path, content)
        except OSError:
            return


def default_cache_dir(env: Mapping[str, str] | None = None) -> Path | None:
    """Return where answers are kept: ``greenlove/intensity`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    None where no home is known, as in some containers. The variable counts only where it is absolute, as the XDG Base
    Directory Specification says.
    """
    env = os.environ if env is None else env
    base = Path(env.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path("~/.cache").expanduser()
        except RuntimeError:
            return None
    return base / "greenlove" / "intensity"


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
