"""What a person is told, and that no secret is ever in it."""

from __future__ import annotations

import logging
import socket
import traceback

import pytest
from mzsql_s3 import S3Blob
from s3_places import FEW, IMPATIENT, SMALL
from s3_proxy import Answer, after, answer, cut, hang, on, reset
from s3_server import ACCESS_KEY, SECRET

from mzsql.location import Determinate, LocationError, open_blob

TOKEN = "sentinel-session-token/of+the+tests=="


def _closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _told(blob, *, write=False):
    with pytest.raises(LocationError) as caught:
        blob.set("k", b"1") if write else blob.get("k")
    return caught.value


def test_no_bucket(s3, opened):
    """Said by every operation, and no bucket is made."""
    url = s3.fresh_url().replace(s3.bucket, "not-there")
    blob = opened(url=url, **FEW)
    acts = [
        lambda: blob.get("k"),
        lambda: blob.get_range("k", 0, 1),
        lambda: blob.set("k", b""),
        lambda: blob.set("k", bytes(17 * 1024 * 1024)),
        lambda: blob.delete("k"),
        lambda: blob.delete_many(["k"]),
        lambda: list(blob.list_keys_and_metadata("")),
        lambda: blob.make_durable(["k"]),
    ]
    for act in acts:
        with pytest.raises(Determinate, match="there is no bucket 'not-there'") as caught:
            act()
        assert "mzsql makes no buckets" in caught.value.hint
        assert s3.endpoint.rpartition(":")[2] in caught.value.message
    assert [one["Name"] for one in s3.client().list_buckets()["Buckets"]] == [s3.bucket]


def test_nobody_there(opened):
    blob = opened(url=f"s3://b/x?endpoint=http://127.0.0.1:{_closed_port()}", **IMPATIENT)
    failure = _told(blob, write=True)
    assert type(failure) is Determinate
    assert "Connection refused" in failure.message
    assert "cannot write 'k'" in failure.message
    assert "after 2 tries" in failure.message
    assert "endpoint" in failure.hint


def test_no_such_host(opened):
    blob = opened(url="s3://b/x?endpoint=http://no-such-host.invalid:9000", **IMPATIENT)
    failure = _told(blob, write=True)
    assert type(failure) is Determinate
    assert "no connection to the server" in failure.message


def test_no_tls_there(s3, opened):
    blob = opened(url=f"s3://b/x?endpoint={s3.endpoint.replace('http:', 'https:')}", **IMPATIENT)
    assert type(_told(blob)) is Determinate


@pytest.mark.parametrize(
    ("status", "code", "says", "hint"),
    [
        (403, "AccessDenied", "AccessDenied", "permissions"),
        (403, "InvalidAccessKeyId", "InvalidAccessKeyId", "correct the credentials"),
        (403, "SignatureDoesNotMatch", "SignatureDoesNotMatch", "correct the credentials"),
        (400, "ExpiredToken", "ExpiredToken", "get new ones"),
        (403, "RequestTimeTooSkewed", "RequestTimeTooSkewed", "clock"),
        (400, "AuthorizationHeaderMalformed", "AuthorizationHeaderMalformed", "region"),
        (403, "InvalidObjectState", "InvalidObjectState", "archive"),
        (404, "NoSuchBucket", "there is no bucket", "Make the bucket"),
        (503, "SlowDown", "overloaded", "concurrency"),
        (500, "InternalError", "the server failed", None),
        (405, "MethodNotAllowed", "MethodNotAllowed", None),
        (501, "NotImplemented", "NotImplemented", "lacks"),
    ],
)
def test_what_servers_refuse(few, proxy, status, code, says, hint):
    proxy.fault = on(answer(status, code, "as the server puts it"), times=None)
    failure = _told(few)
    assert type(failure) is Determinate
    assert says in failure.message
    assert few.place.url in failure.message
    assert (hint is None) == (failure.hint is None)
    assert hint is None or hint in failure.hint
    tries = proxy.counts["GetObject"]
    assert tries == (2 if status in {500, 503} else 1)


def test_something_else_answers(few, proxy):
    """A web server, or a hotel's page to log in: nothing it says is taken for an object, or for a write done."""
    page = Answer(200, {"Content-Type": "text/html"}, b"<html>welcome")
    proxy.fault = on(lambda exchange: exchange.send(page), times=None)
    acts = [
        lambda: few.get("k"),
        lambda: few.get_range("k", 0, 5),
        lambda: few.delete("k"),
        lambda: few.set("k", b"1"),
        lambda: few.set("k", bytes(1300)),
        lambda: few.delete_many(["k"]),
        lambda: list(few.list_keys_and_metadata("")),
        lambda: list(few.list_unfinished()),
        lambda: few.make_durable(["k"]),
    ]
    for act in acts:
        with pytest.raises(LocationError, match=r"no S3 server|Internal Server Error"):
            act()


def test_a_listing_without_an_end(few, direct, proxy):
    """The server says that there is more, but not where, or always from the beginning."""
    direct.set("k", b"1")
    key = direct.place.below("k")
    for token in ("", "<NextContinuationToken>t</NextContinuationToken>"):
        one = f"<Contents><Key>{key}</Key><Size>1</Size></Contents>"
        body = f"<ListBucketResult><IsTruncated>true</IsTruncated>{token}{one}</ListBucketResult>"
        page = Answer(200, {"Content-Type": "application/xml"}, body.encode())
        proxy.fault = on(lambda exchange, p=page: exchange.send(p), times=None)
        with pytest.raises(Determinate, match="no S3 server"):
            list(few.list_keys_and_metadata(""))
    upload = f"<Upload><Key>{key}</Key><UploadId>u</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>"
    markers = "<NextKeyMarker>a</NextKeyMarker><NextUploadIdMarker>b</NextUploadIdMarker>"
    for token in ("", markers):
        body = f"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{token}{upload}</ListMultipartUploadsResult>"
        page = Answer(200, {"Content-Type": "application/xml"}, body.encode())
        proxy.fault = on(
            lambda exchange, p=page: exchange.send(p), "ListMultipartUploads", times=None
        )
        with pytest.raises(Determinate, match="no S3 server"):
            list(few.list_unfinished())


def test_an_object_of_unsaid_length(few, direct, proxy):
    """What came through something that changes bodies on the way is no object."""
    direct.set("k", b"1")
    proxy.fault = on(lambda exchange: exchange.send(exchange.pass_on(), unsaid=True), times=None)
    for act in (lambda: few.get("k"), lambda: few.get_range("k", 0, 1)):
        with pytest.raises(Determinate, match="no S3 server"):
            act()
    with pytest.raises(LocationError, match="no S3 server"):
        few.delete("k")


def test_a_failure_that_is_answered_as_success(faulty, direct, proxy):
    """S3 begins to answer CompleteMultipartUpload before it knows how that ends."""
    value = bytes(1300)
    proxy.fault = on(answer(200, "InternalError", "again"), "CompleteMultipartUpload")
    faulty.set("k", value)
    assert direct.get("k") == value
    assert proxy.counts["CompleteMultipartUpload"] == 2


def test_no_credentials(s3, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(Determinate, match="there are no credentials") as caught:
        open_blob(s3.url("x"))
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    with pytest.raises(Determinate, match="credentials are incomplete"):
        open_blob(s3.url("x"))


def test_profiles(s3, monkeypatch, tmp_path):
    """``profile=`` reads ~/.aws, and one that is not there is said so."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    file.write_text(f"[prod]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    blob = open_blob(s3.fresh_url(profile="prod"))
    blob.set("k", b"1")
    assert blob.get("k") == b"1"
    blob.close()
    with pytest.raises(Determinate, match="no such profile"):
        open_blob(s3.fresh_url(profile="test"))
    file.write_text("[prod\nbroken")
    with pytest.raises(Determinate, match="ConfigParseError"):
        open_blob(s3.fresh_url(profile="prod"))


def test_a_server_that_repeats_what_it_was_sent(few, proxy, monkeypatch):
    """Its words are shown, but for the token, the access key and the signature."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)

    def repeat(exchange):
        sent = " ".join(f"{name}: {value}" for name, value in exchange.seen.headers.items())
        answer(400, "BadRequest", f"I got {sent}")(exchange)

    proxy.fault = on(repeat, times=None)
    for blob in (few, S3Blob(few.place)):
        failure = _told(blob, write=True)
        assert "BadRequest: I got" in failure.message
        signed = {name.lower(): value for name, value in proxy.seen[-1].headers.items()}
        for secret in (ACCESS_KEY, TOKEN, signed["authorization"].rpartition("Signature=")[2]):
            assert secret not in failure.message
    blob.close()
    assert signed["x-amz-security-token"] == TOKEN


@pytest.mark.long
def test_no_secret_in_anything_said(proxy, through_proxy, monkeypatch, caplog, opened, capfd):
    """In no error with its causes, no repr, no log line of ours or of what this uses (at INFO), whatever goes wrong."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    caplog.set_level(logging.INFO)
    logging.getLogger("mzsql_s3").setLevel(logging.DEBUG)
    blob = opened(url=through_proxy, **SMALL, **IMPATIENT)
    said = [repr(blob), str(blob), repr(blob.place), repr(blob.__dict__), blob.spark_path("k")]
    faults = [
        answer(403, "AccessDenied", "no"),
        answer(403, "InvalidAccessKeyId"),
        answer(403, "SignatureDoesNotMatch"),
        answer(400, "ExpiredToken"),
        answer(500, "InternalError"),
        answer(503, "SlowDown"),
        answer(404, "NoSuchBucket"),
        answer(400, "AuthorizationHeaderMalformed"),
        answer(301, "PermanentRedirect"),
        answer(502),
        after(reset),
        cut(0),
        hang(1.2),
    ]
    acts = [
        lambda: blob.get("k"),
        lambda: blob.set("k", b"1"),
        lambda: blob.set("k", bytes(1300)),
        lambda: blob.delete("k"),
        lambda: blob.delete_many(["k"]),
        lambda: list(blob.list_keys_and_metadata("")),
        lambda: list(blob.list_unfinished()),
    ]
    failed = 0
    for fault in faults:
        proxy.fault = on(fault, times=None)
        for act in acts:
            try:
                act()
            except LocationError as failure:
                failed += 1
                said += traceback.format_exception(failure)
                said.append(
                    repr(vars(failure)) + repr(failure.__context__ and vars(failure.__context__))
                )
    assert failed > len(faults) * 5
    signed = {name.lower(): value for name, value in proxy.seen[-1].headers.items()}
    assert signed["x-amz-security-token"] == TOKEN  # so there was something to give away
    signature = signed["authorization"].rpartition("Signature=")[2]
    closed = opened(url=f"s3://b/x?endpoint=http://127.0.0.1:{_closed_port()}", **IMPATIENT)
    said += traceback.format_exception(_told(closed))
    output = capfd.readouterr()
    text = "\n".join([*said, caplog.text, output.out, output.err])
    for secret in (SECRET, TOKEN, ACCESS_KEY, signature):
        assert secret not in text
