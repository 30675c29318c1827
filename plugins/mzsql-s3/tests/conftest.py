"""One server for the tests of this folder; each test has a prefix of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from mzsql_s3 import S3Blob
from s3_places import FEW, IMPATIENT, PATIENT, SMALL, place
from s3_proxy import S3Proxy
from s3_server import S3Server

_SELDOM = {
    "test_atomic_overwrites",
    "test_killed_processes",
    "test_large_value",
    "test_list_many",
    "test_odd_keys",
    "test_processes",
    "test_state_machine",
    "test_threads_apart",
    "test_unfinished_uploads",
}
"""Cases of the kit that ask much of moto, which answers a hundred requests a second."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave the kit's heavy cases to the long run."""
    for item in items:
        kit = item.path.name == "test_s3_contract.py" and item.path.parent == Path(__file__).parent
        if kit and item.originalname in _SELDOM:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def s3():
    with S3Server() as server:
        yield server


@pytest.fixture
def opened(s3):
    """Opens blobs that are closed in the end."""

    blobs = []

    def make(**options):
        blobs.append(S3Blob(place(options.pop("url", None) or s3.fresh_url(), **options)))
        return blobs[-1]

    yield make
    for blob in blobs:
        blob.close()


@pytest.fixture(scope="session")
def s3_of_small_parts():
    """A server that takes parts of any size, and lists by pages of 50."""
    with S3Server("mzsql-small", minimum_part=1, page=50) as server:
        yield server


@pytest.fixture
def proxy(s3_of_small_parts):
    with S3Proxy(s3_of_small_parts.endpoint) as proxy:
        yield proxy


@pytest.fixture
def direct(s3_of_small_parts, opened):
    """A blob of tiny parts, and its URL's part before the options for another way to the same."""
    return opened(url=s3_of_small_parts.fresh_url(), **SMALL)


@pytest.fixture
def through_proxy(direct, proxy):
    """The URL of the objects of `direct` through the proxy."""
    return direct.place.url.partition("?")[0] + f"?region=us-east-1&endpoint={proxy.endpoint}"


@pytest.fixture
def faulty(through_proxy, opened):
    """The objects of `direct` through the proxy, with bounds that no busy machine meets: how often it asks can be counted."""
    return opened(url=through_proxy, **SMALL, **PATIENT)


@pytest.fixture
def few(through_proxy, opened):
    """As `faulty`, for tests in which most gets through and something never does."""
    return opened(url=through_proxy, **SMALL, **FEW)


@pytest.fixture
def impatient(through_proxy, opened):
    """As `faulty`, for tests in which nothing gets through."""
    return opened(url=through_proxy, **SMALL, **IMPATIENT)
