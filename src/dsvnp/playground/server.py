"""Server: the page on localhost, to this machine alone, with nothing kept in the browser's cache between versions."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dsvnp.playground import PAGE

HOST = "127.0.0.1"


class PageHandler(SimpleHTTPRequestHandler):
    """Serves files quietly, with types that do not depend on the machine's settings."""

    extensions_map = {  # noqa: RUF012 (as in the standard library)
        "": "application/octet-stream",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".json": "application/json",
    }

    def end_headers(self) -> None:
        """Ask browsers to look for a newer file each time: an upgrade of the package must show."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a terminal full of requests helps nobody."""


def make_server(port: int = 0) -> ThreadingHTTPServer:
    """Make a server of the page; port 0 takes any that is free."""
    try:
        return ThreadingHTTPServer((HOST, port), partial(PageHandler, directory=str(PAGE)))
    except OSError as error:
        raise OSError(f"port {port} cannot be used ({error.strerror}); choose another with --port") from error


def address(server: ThreadingHTTPServer) -> str:
    """Where a browser finds the page."""
    return f"http://{HOST}:{server.server_address[1]}/"
