"""URLs and their options, and the hooks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from mzsql_s3 import Options, mzsql_scratch_url, mzsql_serves, place_of

from mzsql.location import InvalidUrl, open_blob, split_url


def _place(url):
    return place_of(split_url(url))


def test_places():
    place = _place("s3://bucket")
    assert (place.bucket, place.prefix, place.options) == ("bucket", "", Options())
    assert place.object_key("a/b") == "a/b"
    for url in ("s3://b/x/y%20z", "s3://b/x/y%20z/", "s3://b//x/y%20z"):
        assert _place(url).prefix == "x/y z"
    assert _place("s3://b/x").object_key("a") == "x/a"


def test_all_options():
    url = (
        "s3://b/x?endpoint=https://h:9000/&region=eu-central-1&profile=prod&addressing=path&checksums=md5&conditional=never"
        "&connect_timeout=1.5&read_timeout=2&timeout=3&attempts=4&concurrency=5&multipart_threshold=6000000&part_size=7000000"
    )
    assert _place(url).options == Options(
        endpoint="https://h:9000",
        region="eu-central-1",
        profile="prod",
        addressing="path",
        checksums="md5",
        conditional="never",
        connect_timeout=1.5,
        read_timeout=2.0,
        timeout=3.0,
        attempts=4,
        concurrency=5,
        multipart_threshold=6_000_000,
        part_size=7_000_000,
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3:", "name of a bucket"),
        ("s3:/bucket", "name of a bucket"),
        ("s3:///prefix", "name of a bucket"),
        ("s3://bucket:9000/x", "name of a bucket"),
        ("s3://buc%20ket", "name of a bucket"),
        ("s3://b/x/../y", "not a prefix"),
        ("s3://b/x//y", "not a prefix"),
        ("s3://b/x%0Ay", "cannot take"),
        ("s3://b?colour=red", "no option 'colour'"),
        ("s3://b?region=a&region=b", "twice"),
        ("s3://b?region=", "region is empty"),
        ("s3://b?profile=", "profile is empty"),
        ("s3://b#x", "#"),
        ("s3://b?endpoint=localhost:9000", "no address"),
        ("s3://b?endpoint=ftp://h", "no address"),
        ("s3://b?endpoint=http://", "no address"),
        ("s3://b?endpoint=http://h:x", "no address"),
        ("s3://b?endpoint=http://h/path", "no address"),
        ("s3://b?endpoint=http://[h", "no address"),
        ("s3://b?addressing=dns", "one of auto, path, virtual"),
        ("s3://b?checksums=none", "one of crc32, md5"),
        ("s3://b?conditional=yes", "one of auto, never"),
        ("s3://b?timeout=soon", "a number from"),
        ("s3://b?timeout=0", "a number from"),
        ("s3://b?timeout=nan", "a number from"),
        ("s3://b?timeout=inf", "a number from"),
        ("s3://b?attempts=1.5", "a whole number from"),
        ("s3://b?concurrency=0", "a whole number from"),
        ("s3://b?part_size=5242879", "a whole number from"),
        ("s3://b?multipart_threshold=100", "a whole number from"),
    ],
)
def test_what_is_wrong_with_a_url(url, message):
    with pytest.raises(InvalidUrl, match=message):
        _place(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:hush-hush@bucket/x",
        "s3://hush-hush@bucket/x?region=a",
        "s3://:hush-hush@bucket",
        "s3://bucket?endpoint=http://key:hush-hush@host:9000",
        "s3://bucket?secret_access_key=hush-hush",
        "s3://bucket?aws_session_token=hush-hush",
    ],
)
def test_credentials_in_a_url_are_refused_unseen(url):
    with pytest.raises(InvalidUrl) as caught:
        open_blob(url)
    assert "hush-hush" not in f"{caught.value!s}{caught.value!r}"


def test_hooks(monkeypatch):
    [serves] = mzsql_serves()
    assert (serves.kind, serves.schemes) == ("blob", ("s3",))
    monkeypatch.delenv("MZSQL_TEST_S3_URL", raising=False)
    assert mzsql_scratch_url("blob", "/tmp/x") is None
    monkeypatch.setenv("MZSQL_TEST_S3_URL", "s3://b/x?region=a&endpoint=http://h:1")
    assert mzsql_scratch_url("consensus", "/tmp/x") is None
    one, again, other = (mzsql_scratch_url("blob", f"/tmp/{name}") for name in "xxy")
    assert one == again != other
    assert _place(one).prefix.startswith("x/")
    assert _place(one).options == _place("s3://b?region=a&endpoint=http://h:1").options


def test_the_core_finds_it_by_its_entry_point(s3):
    """In a process that imports nothing of the plugin itself, and boto3 only when a bucket is opened."""
    program = (
        "import sys\n"
        "from mzsql.location import open_blob\n"
        "open_blob('mem:x').close()\n"
        "assert 'mzsql_s3' in sys.modules and 'boto3' not in sys.modules\n"
        f"blob = open_blob({s3.fresh_url()!r})\n"
        "blob.set('k', b'1')\n"
        "assert blob.get('k') == b'1'\n"
        "assert type(blob).__module__ == 'mzsql_s3.blob'\n"
        "blob.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **s3.environment()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
