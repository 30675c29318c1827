"""Over TLS: bodies are signed by nothing but their checksum, in a header, and a certificate nobody trusts is refused at once."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from s3_places import BRIEF, IMPATIENT, SMALL
from s3_proxy import S3Proxy, drip, on, trickle

from mzsql.location import Determinate


@pytest.fixture
def certificate(tmp_path):
    """The files of a certificate for 127.0.0.1, signed by itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, secret


@pytest.fixture
def secure(s3_of_small_parts, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with S3Proxy(s3_of_small_parts.endpoint, tls=context) as proxy:
        yield proxy


def test_over_tls(secure, certificate, direct, opened, monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate[0]))
    url = direct.place.url.partition("?")[0] + f"?region=us-east-1&endpoint={secure.endpoint}"
    short, long = opened(url=url), opened(url=url, **SMALL)
    value = bytes(range(256)) * 3000  # several blocks by one request, and parts
    short.set("short", value)
    long.set("long", value[:5000])
    assert short.get("short") == value
    assert long.get("long") == direct.get("long") == value[:5000]
    long.delete_many(["short", "long"])
    assert list(direct.list_keys_and_metadata("")) == []
    with_body = {"PutObject", "UploadPart", "DeleteObjects"}
    for seen in secure.seen:
        headers = {name.lower(): value for name, value in seen.headers.items()}
        if seen.operation in with_body:
            assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
            assert "x-amz-checksum-crc32" in headers
            assert not {"expect", "x-amz-trailer", "transfer-encoding"} & set(headers)
    assert with_body <= {seen.operation for seen in secure.seen}


def test_no_answer_over_tls_outlasts_its_time(secure, certificate, direct, opened, monkeypatch):
    """Neither the head of an answer nor its body, whose bytes come one by one."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate[0]))
    url = direct.place.url.partition("?")[0] + f"?region=us-east-1&endpoint={secure.endpoint}"
    direct.set("k", bytes(900))
    blob = opened(url=url, **IMPATIENT)
    for fault in (drip(0.05), trickle(0.05)):
        secure.fault = on(fault, times=None)
        start = time.monotonic()
        with pytest.raises(Determinate, match=r"in time|not done in"):
            blob.get("k")
        assert time.monotonic() - start < 40


def test_a_certificate_nobody_trusts(secure, opened):
    blob = opened(url=f"s3://b/x?region=us-east-1&endpoint={secure.endpoint}", **BRIEF)
    for act in (lambda: blob.get("k"), lambda: blob.set("k", b"1")):
        with pytest.raises(Determinate, match="certificate is not trusted") as caught:
            act()
        assert "AWS_CA_BUNDLE" in caught.value.hint
        assert "tries" not in caught.value.message


def test_an_endpoint_of_the_environment(s3, opened, monkeypatch):
    """Without TLS the body is signed, wherever the endpoint is named."""
    with S3Proxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        blob = opened(url=f"s3://{s3.bucket}/by-environment")
        blob.set("k", b"1")
        assert blob.get("k") == b"1"
        [put, _] = proxy.seen
        assert len(put.headers["X-Amz-Content-SHA256"]) == 64
