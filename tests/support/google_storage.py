"""As much of Google Cloud Storage's XML interface as a store needs, in this process."""

from __future__ import annotations

import http.server
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


class _Storage(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.lock = threading.Lock()
        self.generations = itertools.count(1)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Storage
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        if bucket != "bucket":
            self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif not key:
            self._list({name: values[0] for name, values in parse_qs(parts.query).items()})
        elif key in self.server.objects:
            content, generation = self.server.objects[key]
            self._answer(200, content, generation)
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_HEAD = do_GET  # noqa: N815 - its name for them

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        _, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        with self.server.lock:
            expected = self.headers.get("x-goog-if-generation-match")
            _, present = self.server.objects.get(key, (b"", 0))
            if expected is not None and int(expected) != present:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            generation = next(self.server.generations)
            self.server.objects[key] = content, generation
        self._answer(200, b"", generation)

    def do_DELETE(self) -> None:
        _, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        with self.server.lock:
            removed = self.server.objects.pop(key, None)
        self._answer(404 if removed is None else 204, b"")

    def _list(self, query: dict[str, str]) -> None:
        prefix, after = query.get("prefix", ""), query.get("start-after", "")
        after = max(after, query.get("continuation-token", ""))
        keys = sorted(k for k in [*self.server.objects] if k.startswith(prefix) and k > after)
        page, more = keys[:PAGE], len(keys) > PAGE
        rows = []
        for key in page:
            content, generation = self.server.objects[key]
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                f'<ETag>"{generation}"</ETag>'
                "<LastModified>2026-11-20T10:00:00.000Z</LastModified></Contents>"
            )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult>{''.join(rows)}{token}</ListBucketResult>"
        self._answer(200, text.encode())

    def _answer(self, status: int, content: bytes, generation: int = 0) -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{generation}"')
        self.send_header("x-goog-generation", str(generation))
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def google_storage() -> Iterator[dict[str, str]]:
    """Yield an empty bucket named 'bucket', and the environment that leads there."""
    with _Storage() as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield {
                "GOOGLE_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}",
                "GOOGLE_BEARER_TOKEN": "any-token",
                "GOOGLE_ALLOW_HTTP": "true",
            }
        finally:
            server.shutdown()
            thread.join()
