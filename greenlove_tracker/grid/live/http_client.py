"""The one place that asks the network for carbon intensities: time-outs, one retry, a disk cache, and no leaked token.

An answer is JSON. It is kept on the disk, without the tokens that a service may echo in it, and asked for again only
when it is older than the caller allows; where the service then fails, an older answer stands in and says so.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.files import write_atomically
from greenlove_tracker.forks import forks_wait
from greenlove_tracker.secret_masking import MASK

if TYPE_CHECKING:  # requests takes 60 ms to load, and only a request needs it
    from requests import Response, Session

T = TypeVar("T")

MOST_BYTES = 8 * 1024**2  # EIA's largest page, 5,000 rows, has 1.2 MB
MOST_STALE_S = 6 * 3600.0
_KEPT_S = 2 * 86400.0  # nothing on the disk is read after this
_MOST_REDIRECTS = 3
_ONCE_MORE = (408, 500, 502, 503, 504)
_PASSING = (*_ONCE_MORE, 425, 429)
_CHUNK_BYTES = 64 * 1024
_LEAST_SECRET_CHARACTERS = 6  # a password "1" would be found in every figure
_OTHER_SHAPE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])
_HEADERS = {"Accept": "application/json", "User-Agent": "greenlove_tracker"}


class RequestFailed(GreenloveError):  # noqa: N818  # one of several that are tried
    """A service did not answer as it should; the message says how, and holds neither a token nor a query.

    Attributes:
        is_passing: it may answer later: a token that is refused stays refused.
    """

    def __init__(self, message: str, is_passing: bool = True) -> None:
        super().__init__(message)
        self.is_passing = is_passing


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

    A call ends within ``connect_s`` and ``timeout_s``, which a service that answers with an error at once may take
    twice. What Python cannot bound is not included: looking up the host's name. It belongs on a thread that nobody
    waits for.

    Attributes:
        cache_dir: where answers are kept; None: nowhere.
        timeout_s: for an answer, to its last byte.
        connect_s: for the connection: a network that drops everything is found out sooner.
        utc_s: seconds since the Unix epoch.
    """

    cache_dir: Path | None = None
    timeout_s: float = 3.0
    connect_s: float = 2.0
    utc_s: Callable[[], float] = time.time

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
        try:
            found = self._ask(url, [*parameters, *secret_parameters], headers or {}, hidden)
            known_utc = self.now()
            try:
                answer = Answer(parse(found), known_utc)
            except _OTHER_SHAPE:
                raise RequestFailed(f"the answer of {urlsplit(url).hostname} has another shape than expected") from None
        except RequestFailed as failure:
            if kept is not None and failure.is_passing and self._age_s(kept.known_utc) <= max_stale_s:
                return Answer(kept.data, kept.known_utc, str(failure))
            raise
        if path is not None:
            self._keep(path, found, known_utc)
        return answer

    def _ask(
        self, url: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str], hidden: Sequence[str]
    ) -> Any:
        """Return the JSON of an answer, without the secrets in it: EIA repeats the key."""
        with forks_wait:  # a run asks on a thread of its own
            from requests.exceptions import ConnectTimeout, RequestException, Timeout
            from urllib3.exceptions import HTTPError
            from urllib3.exceptions import TimeoutError as LateAnswer
        host = urlsplit(url).hostname
        connect_s = min(self.connect_s, self.timeout_s)
        # No error is chained: those of requests hold the address with its query, and so may hold a token.
        try:
            with _session() as session:
                options: dict[str, Any] = {"stream": True, "allow_redirects": not hidden}
                options["timeout"] = connect_s, self.timeout_s
                if hidden and url.startswith("http:"):  # to this machine alone, and not by way of a proxy
                    options["proxies"] = {"http": None, "all": None}
                response = session.get(url, params=list(query), headers={**_HEADERS, **headers}, **options)
                text = _without(self._body(response), hidden)
        except ConnectTimeout:
            raise RequestFailed(f"{host} did not answer within {connect_s:g} s") from None
        except (Timeout, LateAnswer, TimeoutError):
            raise RequestFailed(f"{host} did not answer within {self.timeout_s:g} s") from None
        except (RequestException, HTTPError, OSError, ValueError):  # ValueError: a redirect to what is no address
            raise RequestFailed(f"{host} cannot be reached, or the connection broke") from None
        if response.status_code != 200:
            raise _failure(response.status_code, host, text)
        try:
            return json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise RequestFailed(f"the answer of {host} is not JSON, or broke off") from None

    def _body(self, response: Response) -> str:
        """Return the text; the socket's time-out is for each piece, so that a trickle would never end."""
        ends_s = time.monotonic() + self.timeout_s
        body = bytearray()
        while piece := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            body += piece
            if len(body) > MOST_BYTES:
                raise RequestFailed(f"an answer is longer than {MOST_BYTES // 1024**2} MiB")
            if time.monotonic() > ends_s:
                raise TimeoutError
        return body.decode("utf-8", "replace")

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

    def _keep(self, path: Path, found: Any, known_utc: datetime) -> None:
        """Write an answer to the disk; one that cannot be written is asked for again, which is no reason to warn."""
        content = json.dumps({"known_utc_s": known_utc.timestamp(), "data": found}).encode()
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


def _session() -> Session:
    with forks_wait:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3 import Retry

    session = requests.Session()
    session.max_redirects = _MOST_REDIRECTS
    again = Retry(
        total=1,
        connect=0,
        read=False,
        status_forcelist=_ONCE_MORE,
        respect_retry_after_header=False,
        raise_on_status=False,
    )
    session.mount("https://", HTTPAdapter(max_retries=again))
    session.mount("http://", HTTPAdapter(max_retries=again))
    return session


def _failure(status: int, host: str | None, text: str) -> RequestFailed:
    """Return what an answer other than 200 says."""
    words = {401: ", the token is refused", 403: ", not allowed", 404: ", not found", 429: ", too many requests"}
    said = f"HTTP {status}{words.get(status, '')} from {host}"
    if message := _message(text):
        said += f": {message}"
    return RequestFailed(said, status in _PASSING)


def _message(text: str) -> str:
    """Return what a service says of its error, in one printable line: it goes to a terminal."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""  # a page for people
    for key in ("error", "message", "detail"):  # {"error": {"message": …}} of NESO and api.data.gov, {"message": …}
        if isinstance(found, dict):
            found = found.get(key, found)
    return "".join(c if c.isprintable() else " " for c in found)[:200] if isinstance(found, str) else ""


def _without(text: str, hidden: Sequence[str]) -> str:
    """Return a text without the secrets in it, as they are or as an address writes them."""
    long_enough = [secret for secret in hidden if len(secret) >= _LEAST_SECRET_CHARACTERS]
    forms = {form for secret in long_enough for form in (secret, quote(secret, safe=""), quote_plus(secret))}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
