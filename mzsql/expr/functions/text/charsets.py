"""Decoding of bytes in a named encoding.

Promise: names are the WHATWG standard's or PostgreSQL's (with a hyphen for an underscore); bytes that are invalid in
the encoding are an error. UTF-8 and single-byte encodings work in every engine; others for constants only, as the
refusal says.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text, scalar
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.expr.functions.text.encodings import known_bytes, utf8_text
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import BYTEA, INTEGER, TEXT, SqlType

#: Names that differ in Python, and encodings that are supersets of the standard's.
_OTHERWISE = {
    "big5": "big5hkscs",
    "big5-hkscs": "big5hkscs",
    "euc-kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "shift-jis": "cp932",
    "sjis": "cp932",
    "us-ascii": "cp1252",
    "ascii": "cp1252",
    "utf8": "utf-8",
    "win1250": "cp1250",
    "win1251": "cp1251",
    "win1252": "cp1252",
    "windows-874": "cp874",
}
#: Python's codecs that are no text encodings.
_NO_TEXT = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"})


def _codec(name: str) -> str | None:
    """Python's name of an encoding; None if the name is unknown."""
    low = name.strip().lower().replace("_", "-")
    try:
        found = codecs.lookup(_OTHERWISE.get(low, low))
    except (LookupError, ValueError):  # Python knows no such encoding, or the name can be none
        return None
    known = getattr(found, "_is_text_encoding", True) and found.name not in _NO_TEXT
    return found.name if known else None


def _encoding(args: Sequence[Sql]) -> str | None:
    text = constant_text(args[1], "the name of an encoding")
    return None if text is None else _codec(text)


def _is_single(codec: str) -> bool:
    """Whether every byte of an encoding is one character."""
    try:
        return len(bytes(range(256)).decode(codec)) == 256
    except UnicodeError:
        return False


def _count(data: bytes, codec: str) -> int | None:
    try:
        return len(data.decode(codec))
    except UnicodeError:
        return None


def _length(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    codec, ast = _encoding(args), args[0].ast
    if codec is None:
        return s.integer(s.null())
    if codec == "utf-8":
        return s.integer(s.call("LENGTH", utf8_text(ast, engine)))
    if _is_single(codec):
        return s.integer(s.call("OCTET_LENGTH", ast))
    data = known_bytes(args[0])
    if data is None:
        raise Unsupported(
            f"length of bytes in the encoding {codec} is not supported but of constants"
        )
    count = _count(data, codec)
    return s.integer(s.null() if count is None else s.num(count))


_UNKNOWN = ErrorRule(
    lambda _engine, args, _typ: s.boolean(
        constant_text(args[1], "the name of an encoding") is not None and _encoding(args) is None
    ),
    lambda _engine, args, _typ: s.concat(
        s.text("invalid encoding name '"), args[1].ast, s.text("'")
    ),
)
_BROKEN = ErrorRule(
    lambda engine, args, typ: s.is_null(_length(engine, args, typ)),
    lambda _engine, args, _typ: s.concat(
        s.text("invalid byte sequence '\\x"),
        s.call("LOWER", s.call("HEX", args[0].ast)),
        s.text("' for encoding '"),
        args[1].ast,
        s.text("'"),
    ),
)

FUNCTIONS: tuple[ScalarFunc, ...] = (
    scalar("length_encoded", "length", (BYTEA, TEXT), INTEGER, _length, _UNKNOWN, _BROKEN),
)
