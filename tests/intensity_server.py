"""A local server that answers as services of carbon intensity do, and badly; and a clock that nobody waits for."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from greenlove_tracker.grid.live import http_client

NOW = datetime(2026, 11, 22, 12, 10, tzinfo=UTC)


class FakeTime:
    """Stands for the clock."""

    def __init__(self, now: datetime = NOW) -> None:
        self.utc = now.timestamp()

    def pass_by(self, seconds: float) -> None:
        self.utc += seconds

    def options(self) -> dict[str, Any]:
        return {"utc_s": lambda: self.utc}


@dataclass
class Reply:
    """What the server answers; ``body`` as JSON unless it is bytes."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0  # before the first byte
    trickle_s: float = 0.0  # between two bytes


@dataclass
class Asked:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]


class IntensityServer:
    """Answers each request with ``reply(asked)``, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.reply: Callable[[Asked], Reply] = lambda asked: Reply(status=404)
        self.url = ""

    def always(self, *replies: Reply) -> None:
        """Answer with these in turn, the last one for ever."""
        left = list(replies)
        self.reply = lambda asked: left.pop(0) if len(left) > 1 else left[0]

    def by_path(self, replies: dict[str, Any]) -> None:
        """Answer by how the path begins; 404 for another."""

        def reply(asked: Asked) -> Reply:
            found = next((said for path, said in replies.items() if asked.path.startswith(path)), Reply(status=404))
            return found if isinstance(found, Reply) else Reply(found)

        self.reply = reply

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        asked = Asked(parts.path, parse_qs(parts.query), {k.lower(): v for k, v in handler.headers.items()})
        self.asked.append(asked)
        reply = self.reply(asked)
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        time.sleep(reply.delay_s)
        try:
            handler.send_response(reply.status)
            for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            for piece in [body] if not reply.trickle_s else [body[i : i + 1] for i in range(len(body))]:
                handler.wfile.write(piece)
                handler.wfile.flush()
                time.sleep(reply.trickle_s)
        except OSError:
            return  # the client has left


@contextmanager
def serving():
    """Yield a server on a port of this machine; nothing that it says is known yet."""
    server = IntensityServer()
    http_client._KEPT.clear()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        http.shutdown()
        thread.join()
