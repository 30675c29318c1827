"""A server that answers the requests of S3 that reading and writing objects takes, and does nothing but keep bytes.

    python floor.py        prints its port, and ends with its standard input

Beside a server that works for its answers, what a client costs is hard to see; beside this one it is nearly all there is. It checks
neither signatures nor checksums, and knows PUT, multipart uploads, GET with and without Range, and DELETE, with their conditions.
"""

from __future__ import annotations

import itertools
import re
import socketserver
import sys
import threading
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


class Stored(NamedTuple):
    body: bytes | bytearray
    etag: str
    checksum: str | None


_objects: dict[str, Stored] = {}
_uploads: dict[str, dict[int, bytearray]] = {}
_numbers = itertools.count(1)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_CHECKSUM = "x-amz-checksum-crc32"


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            self._requests()
        except ConnectionError:
            # A client that has read enough of an answer cuts it off.
            return

    def _requests(self) -> None:
        while line := self.rfile.readline():
            method, target, _ = line.decode().split(" ", 2)
            headers = {}
            while (field := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = field.decode().partition(":")
                headers[name.lower()] = value.strip()
            if headers.get("expect"):
                self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = bytearray(int(headers.get("content-length", 0)))
            view = memoryview(body)
            while view.nbytes:
                got = self.rfile.readinto(view)
                if not got:
                    return
                view = view[got:]
            split = urlsplit(target)
            query = parse_qs(split.query, keep_blank_values=True)
            getattr(self, f"do_{method.lower()}")(unquote(split.path), query, headers, body)

    def answer(self, status: str, body: Any = b"", **fields: str) -> None:
        fields = {"Content-Length": str(len(body))} | fields
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        self.request.sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode())
        if len(body):
            self.request.sendall(body)

    def refuse(self, status: str, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def store(self, path: str, headers: dict[str, str], body: Any) -> str | None:
        """Keep an object, if its condition holds; the ETag."""
        there = _objects.get(path)
        if headers.get("if-none-match") == "*" and there is not None:
            self.refuse("412 Precondition Failed", "PreconditionFailed")
            return None
        wanted = headers.get("if-match")
        if wanted is not None and (there is None or there.etag != wanted):
            self.refuse("412 Precondition Failed", "PreconditionFailed")
            return None
        etag = f'"{next(_numbers):032x}"'
        _objects[path] = Stored(body, etag, headers.get(_CHECKSUM))
        return etag

    def do_put(self, path: str, query: Any, headers: dict[str, str], body: bytearray) -> None:
        if "uploadId" in query:
            number = int(query["partNumber"][0])
            _uploads[query["uploadId"][0]][number] = body
            self.answer("200 OK", ETag=f'"{number:032x}"')
        elif (etag := self.store(path, headers, body)) is not None:
            self.answer("200 OK", ETag=etag)

    def do_post(self, path: str, query: Any, headers: dict[str, str], _: bytearray) -> None:
        if "uploads" in query:
            upload = f"upload-{next(_numbers)}"
            _uploads[upload] = {}
            found = f"<UploadId>{upload}</UploadId>"
            self.answer(
                "200 OK",
                f"<InitiateMultipartUploadResult>{found}</InitiateMultipartUploadResult>".encode(),
            )
            return
        upload = query["uploadId"][0]
        parts = _uploads[upload]
        whole = b"".join(parts[number] for number in sorted(parts))
        if (etag := self.store(path, headers, whole)) is not None:
            del _uploads[upload]
            found = f"<ETag>{etag}</ETag>"
            self.answer(
                "200 OK",
                f"<CompleteMultipartUploadResult>{found}</CompleteMultipartUploadResult>".encode(),
            )

    def do_get(self, path: str, query: Any, headers: dict[str, str], _: bytearray) -> None:
        there = _objects.get(path)
        if query:
            self.refuse("501 Not Implemented", "NotImplemented")
        elif there is None:
            self.refuse("404 Not Found", "NoSuchKey")
        elif headers.get("if-match", there.etag) != there.etag:
            self.refuse("412 Precondition Failed", "PreconditionFailed")
        elif (asked := _RANGE.match(headers.get("range", ""))) is not None:
            size = len(there.body)
            start = int(asked[1])
            end = min(int(asked[2]) if asked[2] else size - 1, size - 1)
            self.answer(
                "206 Partial Content",
                memoryview(there.body)[start : end + 1],
                ETag=there.etag,
                Content_Range=f"bytes {start}-{end}/{size}",
            )
        else:
            more = {_CHECKSUM: there.checksum} if there.checksum else {}
            self.answer("200 OK", memoryview(there.body), ETag=there.etag, **more)

    def do_delete(self, path: str, query: Any, *_: Any) -> None:
        if "uploadId" in query:
            _uploads.pop(query["uploadId"][0], None)
        else:
            _objects.pop(path, None)
        self.answer("204 No Content")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def main() -> None:
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
