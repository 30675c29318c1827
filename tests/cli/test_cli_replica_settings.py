"""What `mzsql replica` is given: where it listens, and what of Spark's."""

from __future__ import annotations

import socket

import pytest

from mzsql.adapter.replicas.process import Listening
from mzsql.cli.replica import listening_at, settings_in
from mzsql.repr.errors import InvalidParameter


def test_settings_of_spark_are_taken_as_spark_submit_takes_them() -> None:
    given = ("spark.executor.memory=4g", "spark.driver.extraJavaOptions=-Da=b", "spark.x=")
    assert settings_in(given) == {
        "spark.executor.memory": "4g",
        "spark.driver.extraJavaOptions": "-Da=b",
        "spark.x": "",
    }


def test_what_names_a_secret_is_none() -> None:
    given = {
        "spark.kubernetes.driver.secrets.my-token": "/etc/secrets",
        "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY": "aws:key",
        "spark.kubernetes.authenticate.submission.oauthTokenFile": "/run/token",
    }
    assert settings_in([f"{key}={value}" for key, value in given.items()]) == given


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.ssl.keyPassword",
        "spark.hadoop.fs.s3a.session.TOKEN",
        "spark.kubernetes.authenticate.submission.oauthToken",
    ],
)
def test_credentials_are_refused_and_their_values_not_told(key: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        settings_in(("spark.executor.memory=4g", f"{key}=hunter2"))
    assert refused.value.message.startswith(f"{key} is a credential")
    assert "hunter2" not in str(refused.value)


def test_an_address_that_cannot_be_had_is_told_once_with_its_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidParameter) as refused:
            listening_at(address, None).bound()
    assert refused.value.message == f"a replica cannot listen at {address}: Address already in use"


def test_a_host_that_nobody_knows_is_told() -> None:
    with pytest.raises(InvalidParameter, match=r"cannot listen at no\.such\.invalid:0: "):
        Listening("no.such.invalid").bound()
