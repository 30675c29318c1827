"""The servers that are measured: started for the run, or named by URLs. What is put there goes away again.

PostgreSQL is the `pgserver` wheel's with fsync on; S3 is moto's, in a process of its own; `floor` is a server that only keeps bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from mzsql_postgres import read_options
from mzsql_postgres.dialects import Postgres, quoted
from mzsql_s3 import S3Blob, place_of
from postgres_server import PostgresServer
from s3_server import S3Server

from mzsql.location import shown_url

FLOOR = Path(__file__).parent / "floor.py"


def with_options(url: str, **options: str | int) -> str:
    """The URL with these options set."""
    split = urlsplit(url)
    given = dict(parse_qsl(split.query)) | {name: str(value) for name, value in options.items()}
    return urlunsplit(split._replace(query=urlencode(given)))


class Bare:
    """psycopg alone: a connection set up as the plugin's are (autocommit, the same settings), every statement prepared, one cursor kept."""

    def __init__(self, url: str) -> None:
        self._options = read_options(urlsplit(url))
        self.connection = self._options.connect(30)
        self.connection.execute(Postgres().settings(self._options.limits), prepare=False)
        self.connection.prepare_threshold = 0
        self.cursor = self.connection.cursor(binary=True)
        self.execute = self.cursor.execute

    def text(self, text: str) -> str:
        """``text`` with ``{consensus}``, ``{oracle}`` and ``{schema}`` as the plugin's quoted names."""
        return quoted(text, self._options.schema)

    def value(self, text: str, *parameters: object) -> Any:
        """The one value a query returns."""
        row = self.connection.execute(text, parameters or None).fetchone()
        assert row is not None
        return row[0]

    def close(self) -> None:
        self.connection.close()


@contextmanager
def postgres(given: str | None) -> Iterator[str]:
    """The URL of a server; it makes commits durable, which is checked."""
    if given is not None:
        yield _durable(given)
        return
    with PostgresServer(durable=True) as server:
        yield _durable(server.url())


def _durable(url: str) -> str:
    bare = Bare(url)
    try:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            if bare.value(f"SHOW {setting}") != "on":
                raise SystemExit(
                    f"{shown_url(url)}: {setting} is off: commits are not durable, and figures mean nothing"
                )
    finally:
        bare.close()
    return url


@contextmanager
def schema(url: str) -> Iterator[str]:
    """The URL of a new schema, dropped afterwards."""
    name = f"mzsql_bench_{uuid.uuid4().hex[:12]}"
    try:
        yield with_options(url, schema=name)
    finally:
        with psycopg.connect(_plain(url), autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


def _plain(url: str) -> str:
    """The URL as libpq reads it, without the plugin's own options."""
    split = urlsplit(url)
    own = ("schema", *read_options(split).limits.__struct_fields__)
    kept = [(name, value) for name, value in parse_qsl(split.query) if name not in own]
    return urlunsplit(split._replace(scheme="postgresql", query=urlencode(kept)))


@contextmanager
def s3(given: str | None) -> Iterator[str]:
    """The URL of a prefix in a bucket."""
    if given is not None:
        yield given
        return
    with S3Server() as server:
        yield server.url("bench")


@contextmanager
def floor() -> Iterator[str]:
    """The URL of a bucket of the server that only keeps bytes. Meanwhile the environment has credentials, which it does not look at."""
    login = {"AWS_ACCESS_KEY_ID": "floor", "AWS_SECRET_ACCESS_KEY": "floor"}
    before = {name: os.environ.get(name) for name in login}
    os.environ.update(login)
    process = subprocess.Popen(
        [sys.executable, str(FLOOR)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        yield f"s3://floor/bench?endpoint=http://127.0.0.1:{port}&region=us-east-1"
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@contextmanager
def prefix(url: str) -> Iterator[str]:
    """The URL of a new prefix, emptied afterwards."""
    before, question, options = url.partition("?")
    below = f"{before.rstrip('/')}/{uuid.uuid4().hex[:12]}{question}{options}"
    try:
        yield below
    finally:
        blob = S3Blob(place_of(urlsplit(below)))
        try:
            blob.delete_many([key for key, _ in blob.list_keys_and_metadata("")])
        finally:
            blob.close()
