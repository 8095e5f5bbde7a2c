"""A folder as a bucket that speaks as much of S3 as it takes to read a log: list, head, get a range."""

import contextlib
import re
import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextlib.contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Each folder in this one is a bucket; what the environment must say, for whoever reads it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bucket", (_Handler,), {"folder": folder}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        path = self.folder / unquote(asked.path).strip("/")
        if path.is_dir() and "list-type" in asked.query:
            self._answer(200, _listing(path, parse_qs(asked.query)), {})
        elif path.is_file():
            self._file(path)
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})

    do_HEAD = do_GET

    def _file(self, path: Path) -> None:
        content, wanted = path.read_bytes(), self.headers.get("Range", "")
        first, last = _range(wanted, len(content))
        part = {"Content-Range": f"bytes {first}-{last}/{len(content)}"} if wanted else {}
        headers = {**part, "ETag": '"1"', "Last-Modified": formatdate(0, usegmt=True)}
        self._answer(206 if wanted else 200, content[first : last + 1], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _range(wanted: str, size: int) -> tuple[int, int]:
    """The first and the last byte, as in bytes=0-9, bytes=5- or bytes=-8."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
    if found is None:
        return 0, size - 1
    if not found[1]:
        return max(0, size - int(found[2])), size - 1
    return int(found[1]), min(size - 1, int(found[2] or size))


def _listing(bucket: Path, asked: dict[str, list[str]]) -> bytes:
    prefix, after = (asked.get(name, [""])[0] for name in ("prefix", "start-after"))
    keys = sorted(path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file())
    found = [
        f"<Contents><Key>{escape(key)}</Key><Size>{(bucket / key).stat().st_size}</Size><ETag>1</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in keys
        if key.startswith(prefix) and key > after
    ]
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>".encode()
