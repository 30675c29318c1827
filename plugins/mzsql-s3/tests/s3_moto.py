"""The process behind `s3_server.S3Server`: moto's server on a port the system chooses, which it prints, until standard input ends.

moto lists all unfinished uploads in one page, begun in 2010; here the list has S3's pages and times, as a sweep by age needs both.
"""

from __future__ import annotations

import datetime
import logging
import sys
from typing import Any

from moto.core.responses import ActionResult
from moto.s3.models import FakeMultipart
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from moto.settings import get_s3_default_max_keys


def _note_begin() -> None:
    """Have every upload know when it began."""
    make = FakeMultipart.__init__

    def make_and_note(upload: FakeMultipart, *args: Any, **kwargs: Any) -> None:
        make(upload, *args, **kwargs)
        upload.begun = datetime.datetime.now(datetime.UTC)  # type: ignore[attr-defined]

    FakeMultipart.__init__ = make_and_note  # type: ignore[method-assign]


def _list_multipart_uploads(response: S3Response) -> Any:
    asked = {name: values[0] for name, values in response.querystring.items()}
    page_size = get_s3_default_max_keys()
    limit = min(int(asked.get("max-uploads", page_size)), page_size)
    after = (asked.get("key-marker", ""), asked.get("upload-id-marker", "\U0010ffff"))
    found = sorted(
        (upload.key_name, upload.id, upload.begun)
        for upload in response.backend.list_multipart_uploads(response.bucket_name).values()
        if upload.key_name.startswith(asked.get("prefix", ""))
        and (upload.key_name, upload.id) > after
    )
    page = found[:limit]
    key, upload_id = page[-1][:2] if page else ("", "")
    response.data["Action"] = "ListMultipartUploads"
    return response.serialized(
        ActionResult(
            {
                "Bucket": response.bucket_name,
                "KeyMarker": asked.get("key-marker", ""),
                "UploadIdMarker": asked.get("upload-id-marker", ""),
                "NextKeyMarker": key,
                "NextUploadIdMarker": upload_id,
                "MaxUploads": limit,
                "IsTruncated": len(found) > limit,
                "Uploads": [
                    {"Key": key, "UploadId": upload_id, "Initiated": begun}
                    for key, upload_id, begun in page
                ],
            }
        )
    )


def main() -> None:
    """Serve."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    _note_begin()
    S3Response.list_multipart_uploads = _list_multipart_uploads  # type: ignore[method-assign]
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
