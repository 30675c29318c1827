"""Failures of S3 as typed errors that name the operation, the location without secrets, and what to do.

Promise: a request that certainly took no effect is `Determinate`; one that may have (a lost response, a 5xx on a write)
is `Indeterminate`. Nothing from a request's headers, hence no credential, is in a message or in an error's cause.
Source: "Error responses" and "Best practices design patterns" of the S3 documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3 import exceptions as urllib3

from mzsql.location import Determinate, Indeterminate, LocationError

_THROTTLED = frozenset(
    {
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "TooManyRequests",
        "BandwidthLimitExceeded",
    }
)
"""Refusals before anything was done."""
_AGAIN = frozenset(
    {
        "RequestTimeout",  # the body did not come in time; nothing was stored
        "BadDigest",  # it came damaged
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
        "IncompleteBody",
        "ConditionalRequestConflict",
        "OperationAborted",
    }
)
"""Certainly not done, and worth a retry."""
_REGION = "The bucket is in another region: say ?region=… of the bucket."
_HINTS = {
    "AccessDenied": "Give these credentials the permissions in the README of mzsql-s3 on the bucket and the prefix. "
    "(Without s3:ListBucket S3 says so also of an object that is not there.)",
    "AllAccessDisabled": "The owner of the bucket has disabled it.",
    "NoSuchBucket": "Make the bucket, or correct its name; mzsql makes no buckets.",
    "InvalidBucketName": "Correct the name of the bucket.",
    "InvalidAccessKeyId": "The server does not know the access key: correct the credentials, or the endpoint or profile of the URL.",
    "SignatureDoesNotMatch": "The secret does not belong to the access key, or a proxy changes requests: correct the credentials.",
    "ExpiredToken": "The credentials have expired: get new ones (for a profile of SSO: aws sso login).",
    "InvalidToken": "The session token does not belong to these credentials: get new ones.",
    "RequestTimeTooSkewed": "The clock of this machine is wrong by more than 15 minutes: set it.",
    "PermanentRedirect": "The bucket is in another region, or at another endpoint: say ?region=… of the bucket.",
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "InvalidObjectState": "The object was moved to an archive by a lifecycle rule: restore it, and keep such rules from the prefix.",
    "KMS.DisabledException": "The bucket's KMS key is disabled: enable it.",
    "QuotaExceeded": "The store's quota is used up.",
    "EntityTooSmall": "Raise part_size to what this server takes at least.",
    "EntityTooLarge": "Lower part_size, or multipart_threshold, to what this server takes at most.",
    "NotImplemented": "The server lacks this part of S3's API.",
}
_SAME = {
    "301": "PermanentRedirect",
    "403": "AccessDenied",
    "Forbidden": "AccessDenied",
    "InvalidClientTokenId": "InvalidAccessKeyId",
    "TokenRefreshRequired": "ExpiredToken",
    "ExpiredTokenException": "ExpiredToken",
    "XMinioStorageFull": "QuotaExceeded",
    "XMinioAdminBucketQuotaExceeded": "QuotaExceeded",
}
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"


class ShortBody(Exception):
    """A response's body ended early, does not match its checksum, or its object was replaced during the read; worth a
    retry.
    """


class Strange(Exception):
    """A response that S3 never sends: something else is listening."""


class Late(Exception):
    """The operation's time is over."""


class Verdict(NamedTuple):
    """What a failed request means.

    ``happened``: whether it may have taken effect. ``again``: whether a retry may succeed. ``why`` and ``hint`` are for
    the user.
    """

    happened: bool
    again: bool
    why: str
    hint: str | None = None


def etag_of(answer: Mapping[str, Any]) -> str:
    """The ETag in a response about an object.

    Raises:
        Strange: it has none, though S3 always sends one.
    """
    found = answer.get("ETag")
    if not found:
        raise Strange
    return str(found)


def length_of(answer: Mapping[str, Any]) -> int:
    """The length of a response's body, as the response states it.

    Raises:
        Strange: it does not.
    """
    found = answer.get("ContentLength")
    if found is None:
        raise Strange
    return int(found)


def next_page(
    page: Mapping[str, Any], names: Mapping[str, str], before: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters for the next page of a listing.

    Args:
        page: the current page.
        names: the parameters, each with the name of its value in the page.
        before: the parameters of the current page.

    Raises:
        Strange: the page does not say, or says where it began itself, so that the listing would never end.
    """
    after = {parameter: page.get(name) for parameter, name in names.items()}
    if None in after.values() or after == before:
        raise Strange
    return after


def code_of(failure: boto.ClientError) -> str:
    """The server's error code, such as ``NoSuchKey``; an HTTP status where it sent none."""
    return str(failure.response.get("Error", {}).get("Code", ""))


def status_of(failure: boto.ClientError) -> int:
    """The HTTP status of an error."""
    return int(failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def judge(failure: Exception, bucket: str) -> Verdict:
    """What a request's failure means."""
    match failure:
        case boto.ClientError():
            return _judge_answer(failure, bucket)
        case boto.SSLError() if _CERTIFICATE in str(failure):
            return Verdict(
                False,
                False,
                "the server's certificate is not trusted",
                "Correct the endpoint, or name the authority's certificate in AWS_CA_BUNDLE.",
            )
        case boto.ConnectTimeoutError():
            return Verdict(False, True, "the server could not be reached in time", _REACH)
        case boto.EndpointConnectionError() | boto.ProxyConnectionError():
            return Verdict(False, True, f"no connection to the server ({_cause(failure)})", _REACH)
        case boto.ReadTimeoutError() | urllib3.ReadTimeoutError():
            return Verdict(True, True, "the server did not answer in time", _SLOW)
        # botocore does not wrap urllib3's errors while it reads a response's body.
        case boto.HTTPClientError() | boto.IncompleteReadError() | urllib3.HTTPError():
            return Verdict(True, True, f"the connection broke ({_cause(failure)})", _REACH)
        case ShortBody():
            return Verdict(True, True, str(failure))
        case Late():
            return Verdict(False, False, str(failure), _SLOW)
        case Strange() | ResponseParserError():
            return Verdict(True, False, "what answers there is no S3 server", _NO_S3)
        case RecursionError():  # botocore follows redirects so
            return Verdict(False, False, "the server redirects in circles", _REGION)
    return _judge_set_up(failure)


_REACH = (
    "See that the endpoint and region are right and the server is up and can be reached from here."
)
_NO_S3 = "See that the endpoint is an S3 server's, and that no proxy answers in its place."
_SLOW = "The server or the network is slow or overloaded; the URL's options timeout, read_timeout and concurrency set the bounds."
_FIND = (
    "boto3 looks in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), in ~/.aws (the URL's ?profile= names which), "
    "and for the machine's role."
)


def _judge_answer(failure: boto.ClientError, bucket: str) -> Verdict:
    code, status = code_of(failure), status_of(failure)
    code = _SAME.get(code, code)
    said = str(failure.response.get("Error", {}).get("Message", ""))
    why = f"{code or status}: {said}" if said else f"{code or status}"
    if code == "NoSuchBucket":
        why = f"there is no bucket {bucket!r}"
    if code in _THROTTLED or status == 429:
        return Verdict(False, True, f"the server is overloaded ({why})", _SLOW)
    if code in _AGAIN:
        return Verdict(False, True, why, _HINTS.get(code))
    if code == "NotImplemented" or status == 501:
        return Verdict(False, False, why, _HINTS["NotImplemented"])
    if code in ("InternalError", "ServiceUnavailable") or status >= 500 or status == 408:
        return Verdict(True, True, f"the server failed ({why})", _HINTS.get(code))
    if status == 404 and code in ("404", "") and not said:
        # A response without a body: no S3 server, or one that says no more.
        return Verdict(False, False, why, _NO_S3)
    return Verdict(False, False, why, _HINTS.get(code))


def _judge_set_up(failure: Exception) -> Verdict:
    """What a failure before any request means."""
    match failure:
        case boto.NoCredentialsError():
            return Verdict(False, False, "there are no credentials", _FIND)
        case boto.PartialCredentialsError():
            return Verdict(False, False, "the credentials are incomplete", _FIND)
        case boto.ProfileNotFound():
            return Verdict(False, False, "there is no such profile in ~/.aws", _FIND)
        case (
            boto.CredentialRetrievalError()
            | boto.TokenRetrievalError()
            | boto.SSOError()
            | boto.MetadataRetrievalError()
        ):
            return Verdict(
                False, True, f"the credentials could not be had ({type(failure).__name__})", _FIND
            )
        case boto.BotoCoreError() | ValueError():
            # The messages of these may repeat their arguments.
            return Verdict(
                False,
                False,
                f"boto3 cannot do it ({type(failure).__name__})",
                "See that the URL's options, the AWS_* variables and ~/.aws/config are right.",
            )
    raise failure


def _cause(failure: Exception) -> str:
    """The reason of a failed connection, without the request that botocore's text may quote."""
    inner = getattr(failure, "kwargs", {}).get("error")
    found: BaseException | None = inner if isinstance(inner, BaseException) else failure
    while found is not None and found.__cause__ is not None:
        found = found.__cause__
    for argument in getattr(found, "args", ()):
        if isinstance(argument, OSError):
            found = argument
    if isinstance(found, OSError) and found.strerror:
        return found.strerror
    return type(found).__name__


def error(
    act: str, key: str, url: str, verdict: Verdict, *, happened: bool, tries: int
) -> LocationError:
    """The error to raise for an operation that has failed for good.

    Args:
        act: the operation.
        key: its key.
        url: the location without secrets.
        verdict: what the last failure means.
        happened: whether any try may have taken effect.
        tries: the number of tries.
    """
    what = f" {key!r}" if key else ""
    times = f" (after {tries} tries)" if tries > 1 else ""
    kind = Indeterminate if happened else Determinate
    return kind(f"S3 {url}: cannot {act}{what}: {verdict.why}{times}", hint=verdict.hint)
