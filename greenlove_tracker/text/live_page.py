"""Serves a page that changes to the browsers of this machine, as ``console.live_screen`` draws on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any

from greenlove_tracker.text.console import say
from greenlove_tracker.vocabulary.errors import UsageError

_LOOPBACK = "127.0.0.1"
_NAMES = (_LOOPBACK, "localhost")  # a site whose own name points to this machine (DNS rebinding) has another
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "frame-ancestors 'none'",  # which a page cannot say of itself
    "Cache-Control": "no-store",
    "Refresh": "3",
}


class _PageServer(ThreadingHTTPServer):
    page = b""
    server_bind = TCPServer.server_bind  # its own asks the network for the name of this host

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a browser that went away."""


class _PageHandler(BaseHTTPRequestHandler):
    server: _PageServer

    def do_GET(self) -> None:
        """Send the page, which the browser asks for again and again."""
        if self.headers.get("Host", "").partition(":")[0] not in _NAMES:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        self.send_response(HTTPStatus.OK)
        for header in _HEADERS.items():
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, *_: Any) -> None:
        """Log no request."""


@contextmanager
def live_page(port: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that puts a page in place of the one before; it is served on the loopback interface alone.

    Args:
        port: of it; 0: any that is free.

    Raises:
        UsageError: where it is taken.
    """
    try:
        server = _PageServer((_LOOPBACK, port), _PageHandler)
    except OSError as error:
        raise UsageError(f"port {port}: {error.strerror}; --serve 0 takes any that is free") from error
    thread = Thread(target=server.serve_forever, daemon=True)

    def show(page: str) -> None:
        server.page = page.encode()
        if not thread.ident:  # nobody is answered before
            thread.start()
            say(f"greenlove watch  http://{_LOOPBACK}:{server.server_address[1]}/  (Ctrl-C ends it)")

    try:
        yield show
    finally:
        if thread.ident:
            server.shutdown()
        server.server_close()
