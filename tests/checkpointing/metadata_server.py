"""A metadata server as those of AWS, GCP and Azure, on this machine: what it answers, and what it was asked."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

AWS_TIME = "2026-11-22T12:02:00Z"
INTERRUPTION = "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
EVENTS = "/metadata/scheduledevents"


# What a request must have, by the beginning of its path.
HEADERS = {
    "/latest/": ("X-aws-ec2-metadata-token", "token-1"),
    "/computeMetadata/": ("Metadata-Flavor", "Google"),
    "/metadata/": ("Metadata", "true"),
}


class Metadata(ThreadingHTTPServer):
    """A metadata server: what it answers by path, and what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, str] = {}
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
        is_known = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self._answer(200 if is_known else 400, "token-1" if is_known else "")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        name, value = next(header for start, header in HEADERS.items() if path.startswith(start))
        is_allowed = self.headers.get(name) == value
        self._answer(200 if is_allowed and path in self.server.answers else 404, self.server.answers.get(path, ""))

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
