"""The one place that asks the network for carbon intensities: time-outs, retries, a disk cache, and no leaked token.

An answer is JSON. It is kept on the disk, without the tokens that a service may echo in it, and asked for again only
when it is older than the caller allows; where the service then fails, an older answer stands in and says so.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, quote_plus, urlencode, urlsplit

from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.files import write_atomically
from greenlove_tracker.forks import forks_wait
from greenlove_tracker.secret_masking import MASK

if TYPE_CHECKING:  # urllib.request takes 30 ms to load, and only a request needs it
    from urllib.request import OpenerDirector

T = TypeVar("T")

MOST_BYTES = 8 * 1024**2  # EIA's largest page, 5,000 rows, has 1.2 MB
MOST_STALE_S = 6 * 3600.0
_KEPT_S = 2 * 86400.0  # nothing on the disk is read after this
_FIRST_BACKOFF_S, _MOST_BACKOFF_S = 0.5, 8.0
_MOST_REDIRECTS = 3
_RETRIED = frozenset([408, 425, 429, 500, 502, 503, 504])
_CHUNK_BYTES = 64 * 1024
_LEAST_SECRET_CHARACTERS = 6  # a password "1" would be found in every figure
_OTHER_SHAPE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])


class RequestFailed(GreenloveError):  # noqa: N818  # one of several that are tried
    """A service did not answer as it should; the message says how, and holds neither a token nor a query.

    Attributes:
        status: of HTTP, where there was one.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _TryAgain(Exception):  # noqa: N818  # never leaves this module
    def __init__(self, failure: RequestFailed, wait_s: float | None = None) -> None:
        super().__init__(str(failure))
        self.failure, self.wait_s = failure, wait_s


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer of a service.

    Attributes:
        data: its JSON, as it was parsed.
        known_utc: when it came from the service.
        stale_reason: why an answer stands in that is older than was allowed: how the service failed now; else empty.
    """

    data: T
    known_utc: datetime
    stale_reason: str = ""


@dataclass(frozen=True)
class HttpClient:
    """Gets JSON from services.

    A call ends within ``budget_s`` and one or two ``timeout_s`` more. What Python's library cannot bound is not
    included: looking up the host's name, and a header that trickles. It belongs on a thread that nobody waits for.

    Attributes:
        cache_dir: where answers are kept; None: nowhere.
        timeout_s: for one try, from the connection to the last byte.
        budget_s: for all tries and the pauses between them.
        attempts: tries at most.
        utc_s: seconds since the Unix epoch; like the next three, another one in tests.
        monotonic_s: a clock that is never set.
        sleep: waits so many seconds.
        uniform: a random number between two.
        connect_s: for the connection alone, where somebody waits and an answer may take longer: a network that drops
            everything is found out sooner; None: ``timeout_s``.
    """

    cache_dir: Path | None = None
    timeout_s: float = 10.0
    budget_s: float = 25.0
    attempts: int = 3
    utc_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform
    connect_s: float | None = None

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return datetime.fromtimestamp(self.utc_s(), UTC)

    def get_json(
        self,
        url: str,
        parameters: Sequence[tuple[str, str]] = (),
        *,
        parse: Callable[[Any], T],
        max_age_s: float,
        headers: Mapping[str, str] | None = None,
        secret_parameters: Sequence[tuple[str, str]] = (),
        secrets: Sequence[str] = (),
        max_stale_s: float = MOST_STALE_S,
    ) -> Answer[T]:
        """Return what is parsed of the JSON at an address, or on the disk where that is young enough.

        Args:
            url: without a query.
            parameters: of the query.
            parse: takes the JSON; what it raises of another shape (KeyError, ValueError, TypeError and the like) is a
                failure of the service, and such an answer is not kept.
            max_age_s: an answer on the disk that is no older is taken without asking; 0: nothing is kept or read.
            headers: to send; any that holds a token belongs into ``secrets`` as well.
            secret_parameters: of the query too, after the others; their values are secrets.
            secrets: texts that appear in no message, log or file.
            max_stale_s: an answer on the disk that is no older stands in where the service fails.

        Raises:
            RequestFailed: where there is no answer.
            UsageError: for an address that is not http or https, or that would carry a token unencrypted.
        """
        hidden = tuple(filter(None, (*secrets, *(value for _, value in secret_parameters))))
        check_address(url, bool(hidden))
        path = self._cache_path(url, parameters, hidden) if max_age_s > 0 else None
        kept = None if path is None else self._read(path, parse)
        if kept is not None and self._age_s(kept.known_utc) <= max_age_s:
            return kept
        query = urlencode([*parameters, *secret_parameters])
        try:
            raw = self._fetch(f"{url}?{query}" if query else url, headers or {}, hidden)
            known_utc = self.now()
            try:
                answer = Answer(parse(raw), known_utc)
            except _OTHER_SHAPE:
                host = urlsplit(url).hostname
                raise RequestFailed(f"the answer of {host} has another shape than expected") from None
        except RequestFailed as failure:
            is_passing = failure.status is None or failure.status in _RETRIED  # a token that is refused stays refused
            if kept is not None and is_passing and self._age_s(kept.known_utc) <= max_stale_s:
                return Answer(kept.data, kept.known_utc, str(failure))
            raise
        if path is not None:
            self._keep(path, _masked(raw, hidden), known_utc)
        return answer

    def _fetch(self, url: str, headers: Mapping[str, str], hidden: Sequence[str]) -> Any:
        deadline_s = self.monotonic_s() + self.budget_s
        for attempt in range(1, self.attempts + 1):
            try:
                return self._try_once(url, headers, hidden)
            except _TryAgain as again:
                # Full jitter, so that many trainings that were refused together do not come back together
                # (Brooker, Exponential Backoff and Jitter, AWS Architecture Blog, 2015).
                pause_s = self.uniform(0, min(_MOST_BACKOFF_S, _FIRST_BACKOFF_S * 2**attempt))
                pause_s = max(pause_s, again.wait_s or 0.0)
                if attempt == self.attempts or self.monotonic_s() + pause_s > deadline_s:
                    raise again.failure from None
            self.sleep(pause_s)
        raise AssertionError("attempts is at least 1")

    def _try_once(self, url: str, headers: Mapping[str, str], hidden: Sequence[str]) -> Any:
        with forks_wait:  # a run asks on a thread of its own
            from urllib.error import HTTPError, URLError
            from urllib.request import Request

        host = urlsplit(url).hostname or ""
        request = Request(url, headers={**_HEADERS, **headers})  # noqa: S310  # check_address saw the scheme
        connect_s = self.timeout_s if self.connect_s is None else min(self.connect_s, self.timeout_s)
        ends_s = self.monotonic_s() + self.timeout_s
        # No error is chained: those of urllib hold the address with its query, and so may hold a token.
        try:
            with _opener(bool(hidden), connect_s).open(request, timeout=self.timeout_s) as response:
                raw = self._read_body(response, host, ends_s)
        except HTTPError as error:
            with error:
                failure, wait_s = _http_failure(error, host, hidden, self.utc_s())
            if failure.status in _RETRIED:
                raise _TryAgain(failure, wait_s) from None
            raise failure from None
        except TimeoutError:
            raise _TryAgain(RequestFailed(f"{host} did not answer within {self.timeout_s:g} s")) from None
        except URLError as error:  # without a network an answer takes no longer for being asked for three times
            raise RequestFailed(_unreachable(error, host, connect_s, hidden)) from None
        except http.client.IncompleteRead:
            raise _TryAgain(RequestFailed(f"the answer of {host} broke off")) from None
        except (OSError, http.client.HTTPException) as error:
            kind = type(error).__name__
            raise _TryAgain(RequestFailed(f"the connection to {host} broke ({kind})")) from None
        except ValueError:  # check_address saw ours
            raise RequestFailed(f"{host} redirects to what is no address") from None
        try:
            return json.loads(raw.decode("utf-8", "replace"), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise _TryAgain(RequestFailed(f"the answer of {host} is not JSON, or broke off")) from None

    def _read_body(self, response: http.client.HTTPResponse, host: str, ends_s: float) -> bytes:
        """Return the body; the socket's time-out is for each piece, so that a trickle would never end."""
        length = response.headers.get("Content-Length", "")
        body = bytearray()
        while piece := response.read1(_CHUNK_BYTES):
            body += piece
            if len(body) > MOST_BYTES:
                raise RequestFailed(f"the answer of {host} is longer than {MOST_BYTES // 1024**2} MiB")
            if self.monotonic_s() > ends_s:
                raise TimeoutError
        if length.isdecimal() and len(body) < int(length):
            raise http.client.IncompleteRead(b"")  # read1 does not raise it
        return bytes(body)

    def _cache_path(self, url: str, parameters: Sequence[tuple[str, str]], owners: Sequence[str]) -> Path | None:
        if self.cache_dir is None:
            return None
        # Another token may have another plan, with other answers: it is in the name, from which nobody can read it.
        key = json.dumps([url, list(parameters), list(owners)])
        return self.cache_dir / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _age_s(self, known_utc: datetime) -> float:
        age_s = self.utc_s() - known_utc.timestamp()
        return age_s if age_s >= -60 else math.inf  # of the future: the clock was set, and nothing is known of its age

    def _read(self, path: Path, parse: Callable[[Any], T]) -> Answer[T] | None:
        try:
            kept = json.loads(path.read_bytes())
            known_utc = datetime.fromtimestamp(float(kept["known_utc_s"]), UTC)
            return Answer(parse(kept["data"]), known_utc) if self._age_s(known_utc) <= _KEPT_S else None
        except (OSError, *_OTHER_SHAPE):
            return None  # not there, of another edition, or damaged: it is asked for again

    def _keep(self, path: Path, raw: Any, known_utc: datetime) -> None:
        """Write an answer to the disk; one that cannot be written is asked for again, which is no reason to warn."""
        content = json.dumps({"known_utc_s": known_utc.timestamp(), "data": raw}).encode()
        try:
            is_new = not path.exists()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, content)
            if is_new:
                self._remove_old(path.parent)
        except OSError:
            return

    def _remove_old(self, directory: Path) -> None:
        for path in directory.glob("*.json"):
            if re.fullmatch(r"[0-9a-f]{64}", path.stem) and self.utc_s() - path.stat().st_mtime > _KEPT_S:
                path.unlink(missing_ok=True)


_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "greenlove_tracker"}


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
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError("that is no address of a service: https://host/path, without a user or a query") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        shown = f"{parts.scheme}://{parts.hostname}" if parts.hostname else "that"
        raise UsageError(f"{shown} is no address of a service: https://host/path, without a user or a query")
    if has_secrets and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise UsageError(f"no token is sent to {parts.hostname} unencrypted: give its address with https://")


def _opener(has_secrets: bool, connect_s: float) -> OpenerDirector:
    """Return an opener that knows HTTP only (no file:, no ftp:), and follows a redirect only where that is safe."""
    import urllib.request as web

    def quick(connection: type[http.client.HTTPConnection]) -> type[http.client.HTTPConnection]:
        class Quick(connection):  # type: ignore[valid-type,misc]  # of HTTP or HTTPS
            timeout: Any

            def connect(self) -> None:
                timeout_s, self.timeout = self.timeout, connect_s
                super().connect()
                self.timeout = timeout_s
                self.sock.settimeout(timeout_s)

        return Quick

    class Http(web.HTTPHandler):
        def do_open(self, http_class: Any, req: web.Request, **more: Any) -> http.client.HTTPResponse:
            return super().do_open(quick(http_class), req, **more)

    class Https(web.HTTPSHandler):
        def do_open(self, http_class: Any, req: web.Request, **more: Any) -> http.client.HTTPResponse:
            return super().do_open(quick(http_class), req, **more)

    class Redirects(web.HTTPRedirectHandler):
        max_redirections = _MOST_REDIRECTS

        def redirect_request(
            self, req: web.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> web.Request | None:
            old, new = urlsplit(req.full_url), urlsplit(newurl)
            is_same = (old.scheme, old.hostname, old.port) == (new.scheme, new.hostname, new.port)
            is_safe = new.scheme == "https" or new.scheme == old.scheme
            if new.scheme not in ("http", "https") or not is_safe or (has_secrets and not is_same):
                why = "no token is sent there" if has_secrets else "that is less safe"
                fp.close()
                raise RequestFailed(f"{old.hostname} redirects to {new.scheme}://{new.hostname}: {why}", code)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    proxies = web.getproxies()
    if has_secrets:  # to this machine alone goes a token by http, and not by way of a proxy
        proxies.pop("http", None)
    opener = web.OpenerDirector()
    for handler in (
        web.ProxyHandler(proxies),
        Http(),
        Https(),
        web.HTTPDefaultErrorHandler(),
        web.HTTPErrorProcessor(),
        Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _http_failure(error: Any, host: str, hidden: Sequence[str], utc_s: float) -> tuple[RequestFailed, float | None]:
    """Return what an answer other than 200 says, and how long it asks to wait."""
    wait_s = _retry_after_s(error.headers.get("Retry-After"), utc_s)
    try:
        said = _without(error.read1(_CHUNK_BYTES).decode("utf-8", "replace"), hidden)
    except (OSError, http.client.HTTPException, ValueError):
        said = ""
    words = {401: "the token is refused", 403: "not allowed", 404: "not found", 429: "too many requests"}.get(
        error.code
    )
    text = f"HTTP {error.code}" + (f", {words}" if words else "") + f" from {host}"
    if wait_s is not None:
        text += f", which asks to wait {wait_s:.0f} s"
    if message := _message(said):
        text += f": {message}"
    return RequestFailed(text, error.code), wait_s


def _message(said: str) -> str:
    """Return what a service says of its error, in one printable line: it goes to a terminal."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return ""  # a page for people
    for key in ("error", "message", "detail"):  # {"error": {"message": …}} of NESO and api.data.gov, {"message": …}
        if isinstance(found, dict):
            found = found.get(key, found)
    text = "".join(c if c.isprintable() else " " for c in found) if isinstance(found, str) else ""
    return text[:200]


def _retry_after_s(text: str | None, utc_s: float) -> float | None:
    """Return the seconds of a ``Retry-After``, which is a number of them or a date (RFC 9110, 10.2.3)."""
    if not text:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - utc_s)
    except (ValueError, TypeError, OverflowError):
        return None


def _unreachable(error: Any, host: str, timeout_s: float, hidden: Sequence[str]) -> str:
    reason = error.reason
    if isinstance(reason, TimeoutError):
        return f"{host} did not answer within {timeout_s:g} s"
    said = getattr(reason, "strerror", None) or str(reason)
    return f"{host} cannot be reached ({_without(said, hidden)})"


def _without(text: str, hidden: Sequence[str]) -> str:
    """Return a text without the secrets in it, as they are or as an address writes them."""
    for secret in sorted({form for s in hidden for form in (s, quote(s, safe=""), quote_plus(s))}, key=len)[::-1]:
        text = text.replace(secret, MASK)
    return text


def _masked(data: Any, hidden: Sequence[str]) -> Any:
    """Return JSON without the secrets in its texts: EIA repeats the key in its answer."""
    if isinstance(data, str):
        return _without(data, [secret for secret in hidden if len(secret) >= _LEAST_SECRET_CHARACTERS])
    if isinstance(data, list):
        return [_masked(item, hidden) for item in data]
    return {key: _masked(item, hidden) for key, item in data.items()} if isinstance(data, dict) else data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
