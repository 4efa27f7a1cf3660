"""A web server on this machine that misbehaves on demand, for the tests of downloads."""

import socket
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server has, and how it behaves; both may be changed while it runs.

    Each fault is used up by one GET (HEAD for `head_faults`), in order: ("drop", n) ends the
    connection after n bytes of the body, ("short", n) announces and sends only n bytes,
    ("long", bytes) sends these besides and announces nothing, ("endless",) sends the file again and
    again until the other side has had enough, ("status", code, headers) answers
    with that, ("body", bytes) sends these instead, ("lie", n) sends the part from another place,
    ("change", bytes) changes the file and then answers.
    """

    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    faults: dict[str, list[tuple]] = field(default_factory=dict)
    head_faults: dict[str, list[tuple]] = field(default_factory=dict)
    ranges: bool = True
    etags: bool = True
    modified: str = ""  # Last-Modified of whole files, which answers with parts lack
    lengths: bool = True
    head: bool = True
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    sent: Counter = field(default_factory=Counter)
    url: str = ""

    def gets(self, name: str) -> list[str | None]:
        """The ranges asked for of one file."""
        return [r for method, path, r in self.requests if method == "GET" and path == f"/{name}"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._reply(self.server.site.head_faults)

    def do_GET(self):
        self._reply(self.server.site.faults)

    def _reply(self, faults):
        asked = self.headers.get("Range")
        self.server.site.requests.append((self.command, self.path, asked))
        waiting = faults.get(self.path[1:], [])
        fault = waiting.pop(0) if waiting else ("none",)
        if self.command == "HEAD" and not self.server.site.head:
            return self._answer(405, b"", {})
        if fault[0] == "status":
            return self._answer(fault[1], b"<h1>sorry</h1>", fault[2])
        if fault[0] == "change":
            self.server.site.files[self.path[1:]] = fault[1]
        body = self.server.site.files.get(self.path[1:])
        if body is None:
            return self._answer(404, b"<h1>not here</h1>", {})
        if fault[0] == "body":
            return self._answer(200, fault[1], {})
        return self._file(body, asked, fault)

    def _file(self, body, asked, fault):
        tag = f'"{hash(body):x}"'
        headers = {"ETag": tag} if self.server.site.etags else {}
        valid = self.headers.get("If-Range") in (None, tag) or not self.server.site.etags
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if asked and self.server.site.ranges and valid:
            if first >= len(body):
                return self._answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            first = fault[1] if fault[0] == "lie" else first
            span = f"bytes {first}-{len(body) - 1}/{len(body)}"
            return self._answer(206, body[first:], {"Content-Range": span, **headers}, fault)
        headers |= {"Last-Modified": self.server.site.modified} if self.server.site.modified else {}
        return self._answer(200, body, headers, fault)

    def _answer(self, status, body, headers, fault=("none",)):
        if fault[0] == "short":
            body = body[: fault[1]]
        if fault[0] == "long":
            body += fault[1]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.server.site.lengths and fault[0] not in ("long", "endless"):
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault[0] == "drop":
            body = body[: fault[1]]
        if fault[0] == "endless":
            self._without_end(body)
            return
        self.wfile.write(body)
        self.server.site.sent[self.path[1:]] += len(body)
        if fault[0] == "drop":
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def _without_end(self, body):
        with suppress(ConnectionError):
            while True:
                self.wfile.write(body)
                self.server.site.sent[self.path[1:]] += len(body)

    def log_message(self, *_):
        pass


@contextmanager
def serve(**options):
    """A running server; yields its `Site`."""
    site = Site(**options)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.site = site
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
