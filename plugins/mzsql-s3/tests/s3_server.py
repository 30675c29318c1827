"""A real S3 server for tests: moto's, over HTTP, in a process of its own, on a port the system chooses.

Promise: the server ends with the block, and also when the test process is killed, as it ends with its standard input. While the block
is entered ``os.environ`` has the credentials that a client finds; what they were before comes back with its end. Trade-off: moto keeps
objects in memory and checks no signature, so bad credentials are tested against the proxy (``s3_proxy``) instead.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, urlencode

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REGION = "us-east-1"
ACCESS_KEY = "AKIDMZSQLTEST0000000"
SECRET = "sentinel/secret+of+the+tests/0123456789abcd"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_SERVE = Path(__file__).parent / "s3_moto.py"


class S3Server:
    """``with S3Server() as s3: open_blob(s3.url("some/prefix"))``.

    Attributes:
        endpoint: ``http://127.0.0.1:PORT``.
        bucket: a bucket that is there.
    """

    def __init__(
        self, bucket: str = "mzsql-test", *, minimum_part: int | None = None, page: int = 1000
    ) -> None:
        """``minimum_part``: bytes that each part of an upload but the last must have, S3's 5 MiB by default; ``page``: of listings."""
        self.bucket = bucket
        self.endpoint = ""
        self._minimum_part = minimum_part
        self._page = page
        self._process: subprocess.Popen[str] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._before: dict[str, str | None] = {}
        self._prefixes = itertools.count()

    def environment(self) -> dict[str, str]:
        """The variables by which a client, of this process or another, finds credentials, and nothing else by accident."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def url(self, prefix: str = "", **options: str | int | float) -> str:
        """The URL of a Blob below ``prefix`` in the bucket; ``options`` are the URL's."""
        known = {"endpoint": self.endpoint, "region": REGION, **options}
        return f"s3://{self.bucket}/{quote(prefix)}?{urlencode(known)}"

    def fresh_url(self, **options: str | int | float) -> str:
        """As `url`, below a prefix that no other call gave."""
        return self.url(f"fresh-{next(self._prefixes)}", **options)

    def client(self) -> S3Client:
        """boto3's own client of the server, to look at what is there."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def start(self) -> None:
        """Start the server and make the bucket."""
        self._directory = tempfile.TemporaryDirectory(prefix="mzsql-s3-")
        environment = {**os.environ, **self.environment(), "TMPDIR": self._directory.name}
        environment["MOTO_S3_DEFAULT_MAX_KEYS"] = str(self._page)
        if self._minimum_part is not None:
            environment["S3_UPLOAD_PART_MIN_SIZE"] = str(self._minimum_part)
            environment["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(16 * 1024 * 1024)
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self.stop()
            raise RuntimeError("moto's server did not start: see its output above")
        self.endpoint = f"http://127.0.0.1:{port}"
        self.client().create_bucket(Bucket=self.bucket)

    def stop(self) -> None:
        """End the server and forget its objects."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def __enter__(self) -> Self:
        self.start()
        for name, value in self.environment().items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()
        self.stop()
