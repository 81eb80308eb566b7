"""A metadata server as those of AWS, GCP and Azure, on this machine: what it answers, and what it was asked."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

AWS_TIME = "2026-11-22T12:02:00Z"
INTERRUPTION = "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
EVENTS = "/metadata/scheduledevents"


class Metadata(ThreadingHTTPServer):
    """A metadata server: what it answers by path, and what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, str] = {}
        self.tokens = {"token-1"}
        self.n_tokens = 0
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Metadata

    def _answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        if self.path != "/latest/api/token" or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
            return self._answer(400)
        self.server.n_tokens += 1
        self.server.tokens = {f"token-{self.server.n_tokens}"}
        return self._answer(200, f"token-{self.server.n_tokens}")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if path.startswith("/latest/") and self.headers.get("X-aws-ec2-metadata-token") not in self.server.tokens:
            return self._answer(401)
        if path.startswith("/computeMetadata/") and self.headers.get("Metadata-Flavor") != "Google":
            return self._answer(403)
        if path.startswith("/metadata/") and self.headers.get("Metadata") != "true":
            return self._answer(400)
        if path not in self.server.answers:
            return self._answer(404)
        return self._answer(200, self.server.answers[path])

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Metadata]:
    """Serve while the block runs."""
    server = Metadata()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something another thread does is so; let that thread run meanwhile."""
    never = threading.Event()
    for _ in range(20_000):
        if is_so():
            return
        never.wait(0.001)
    raise AssertionError("it never was so")
