"""Texts and bytes: encodings, digests, characters by code.

Promise: invalid bytes or text for an encoding are an error in Materialize's words; no character is replaced. Base64 has lines of 76
characters, as in MIME and PostgreSQL. Digests that an engine lacks work for constants only, as the refusal says.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, asts, engines, scalar
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.text.sizes import MAX_RESULT, octets, within
from mzsql.expr.functions.text.string_functions import upper
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import BOOLEAN, BYTEA, INTEGER, TEXT, UUID, SqlType


def _join(items: Ast, engine: Engine) -> Ast:
    return s.call("ARRAY_JOIN" if engine is Engine.SPARK else "ARRAY_TO_STRING", items, s.text(""))


def _pieces(text: Ast, pattern: str, engine: Engine) -> Ast:
    """All matches of a pattern without groups."""
    more = [s.num(0)] if engine is Engine.SPARK else []
    return s.call("REGEXP_EXTRACT_ALL", text, s.text(pattern), *more)


def _initcap(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """Each run of letters and digits, capitalized."""
    word = s.variable("w0")
    head = upper(s.call("SUBSTRING", word, s.num(1), s.num(1)))
    tail = s.call("LOWER", s.call("SUBSTRING", word, s.num(2)))
    words = _pieces(args[0].ast, "[\\p{L}\\p{N}]+|[^\\p{L}\\p{N}]+", engine)
    return _join(s.mapped(words, "w0", s.concat(head, tail), engine), engine)


def _chr(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    code = args[0].ast
    safe = s.case(
        (s.and_(s.between(code, s.num(1), s.num(0x10FFFF)), s.not_(_surrogate(code))), code)
    )
    if engine is Engine.DUCKDB:
        return s.call("CHR", safe)
    digits = s.call("LPAD", s.call("HEX", s.big(safe)), s.num(8), s.text("0"))
    return s.call("DECODE", s.call("UNHEX", digits), s.text("UTF-32"))


def _surrogate(code: Ast) -> Ast:
    return s.between(code, s.num(0xD800), s.num(0xDFFF))


_CHR_ERRORS = (
    ErrorRule(asts(lambda code: s.eq(code, s.num(0))), "null character not permitted"),
    ErrorRule(
        asts(
            lambda code: s.or_(s.not_(s.between(code, s.num(1), s.num(0x10FFFF))), _surrogate(code))
        ),
        engines(spark=lambda code: _bad_character(code), duckdb=lambda code: _bad_character(code)),
    ),
)


def _bad_character(code: Ast) -> Ast:
    return s.concat(s.text("requested character not valid for encoding: "), s.string(code))


# --- encode and decode -------------------------------------------------------------------------------


def _base64(ast: Ast, engine: Engine) -> Ast:
    plain = s.call("BASE64" if engine is Engine.SPARK else "TO_BASE64", ast)
    group = "$1\n" if engine is Engine.SPARK else "\\1\n"
    broken = s.regexp_replace(
        s.regexp_replace(plain, "[\r\n]+", "", engine), "(.{76})", group, engine
    )
    return s.regexp_replace(broken, "\n$", "", engine)


def _escaped(ast: Ast, engine: Engine) -> Ast:
    """Bytes in escape format: zero and those above 127 as a backslash and three octal digits, a backslash doubled."""
    pair = s.variable("h0")
    digits = s.text("0123456789ABCDEF")
    nibbles = [
        s.sub(s.call("INSTR", digits, s.call("SUBSTRING", pair, s.num(n), s.num(1))), s.num(1))
        for n in (1, 2)
    ]
    byte = s.add(s.mul(nibbles[0], s.num(16)), nibbles[1])
    octal = s.concat(
        s.text("\\"),
        *(s.string(s.mod(s.int_div(s.big(byte), s.big(s.num(8**n))), s.num(8))) for n in (2, 1, 0)),
    )
    shown = s.case(
        (s.or_(s.eq(byte, s.num(0)), s.gte(byte, s.num(128))), octal),
        (s.eq(byte, s.num(92)), s.text("\\\\")),
        otherwise=s.call("CHR", s.integer(byte)),
    )
    pairs = _pieces(s.call("HEX", ast), "..", engine)
    return _join(s.mapped(pairs, "h0", shown, engine), engine)


_TOKENS = "\\\\[0-3][0-7][0-7]|\\\\\\\\|[^\\\\]+"


def unescaped(text: Ast, engine: Engine) -> Ast:
    r"""The bytes of a text in PostgreSQL's escape format (``\\`` and ``\ooo``); NULL if invalid."""
    piece = s.variable("e0")

    def octal(position: int) -> Ast:
        return s.integer(s.call("SUBSTRING", piece, s.num(position), s.num(1)))

    byte = s.add(s.add(s.mul(octal(2), s.num(64)), s.mul(octal(3), s.num(8))), octal(4))
    is_octal = s.matches(piece, "^\\\\[0-7]{3}$", engine)
    safe = s.case((is_octal, byte), otherwise=s.num(0))
    two = s.call("LPAD", s.call("HEX", s.big(safe)), s.num(2), s.text("0"))
    shown = s.case(
        (is_octal, two),
        (s.eq(piece, s.text("\\\\")), s.text("5C")),
        otherwise=s.call("HEX", piece),
    )
    pieces = _pieces(text, _TOKENS, engine)
    whole = s.eq(s.regexp_replace(text, _TOKENS, "", engine), s.text(""))
    digits = _join(s.mapped(pieces, "e0", shown, engine), engine)
    return s.call("UNHEX", s.case((whole, digits)))


def _format(args: Sequence[Sql], name: str) -> Ast:
    return s.eq(s.call("LOWER", args[1].ast), s.text(name))


def _known_format(args: Sequence[Sql]) -> Ast:
    return s.or_(*(_format(args, name) for name in ("hex", "base64", "escape")))


def _encode(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    ast = args[0].ast
    return s.case(
        (_format(args, "hex"), s.call("LOWER", s.call("HEX", ast))),
        (_format(args, "base64"), _base64(ast, engine)),
        (_format(args, "escape"), _escaped(ast, engine)),
    )


def _encoded_size(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The size of `encode`'s result; escapes are counted only if escaping each byte would be too large."""
    ast = args[0].ast
    size = s.big(s.call("OCTET_LENGTH", ast))
    four, three = s.big(s.num(4)), s.big(s.num(3))
    digits = s.mul(s.int_div(s.add(size, s.big(s.num(2))), three), four)
    lines = s.int_div(digits, s.big(s.num(76)))
    small = s.lte(s.mul(size, four), s.num(MAX_RESULT))
    escaped = s.case((small, s.big(s.num(0))), otherwise=octets(_escaped(ast, engine), engine))
    return s.case(
        (_format(args, "hex"), s.mul(size, s.num(2))),
        (_format(args, "base64"), s.add(digits, lines)),
        (_format(args, "escape"), escaped),
    )


_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _decode(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    dense = s.regexp_replace(args[0].ast, "[ \t\r\n]+", "", engine)
    hexed = s.case((s.matches(dense, "^([0-9a-fA-F]{2})*$", engine), dense))
    sixty_four = s.case((s.matches(dense, _BASE64, engine), dense))
    return s.case(
        (_format(args, "hex"), s.call("UNHEX", hexed)),
        (
            _format(args, "base64"),
            s.call("UNBASE64" if engine is Engine.SPARK else "FROM_BASE64", sixty_four),
        ),
        (_format(args, "escape"), unescaped(args[0].ast, engine)),
    )


def _bad_format(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    del engine
    return s.not_(_known_format(args))


def _bad_format_message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.concat(s.text("invalid encoding name '"), args[1].ast, s.text("'"))


def _undecodable(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    dense = s.regexp_replace(args[0].ast, "[ \t\r\n]+", "", engine)
    foreign = s.regexp_replace(dense, "[0-9a-fA-F]", "", engine)
    digit = s.concat(
        s.text('invalid hexadecimal digit: "'),
        s.call("SUBSTRING", foreign, s.num(1), s.num(1)),
        s.text('"'),
    )
    odd = s.text("invalid hexadecimal data: odd number of digits")
    symbol = s.regexp_replace(dense, "[A-Za-z0-9+/=]", "", engine)
    sixty_four = s.case(
        (
            s.neq(symbol, s.text("")),
            s.concat(
                s.text('invalid symbol "'),
                s.call("SUBSTRING", symbol, s.num(1), s.num(1)),
                s.text('" found while decoding base64 sequence'),
            ),
        ),
        otherwise=s.text("invalid base64 end sequence"),
    )
    return s.case(
        (_format(args, "hex"), s.case((s.neq(foreign, s.text("")), digit), otherwise=odd)),
        (_format(args, "base64"), sixty_four),
        otherwise=s.text("invalid input syntax for type bytea: invalid escape sequence"),
    )


_FORMAT_RULE = ErrorRule(_bad_format, _bad_format_message)


# --- characters of bytes -----------------------------------------------------------------------------

_UTF8 = ("utf8", "utf-8")


def _utf8_name(args: Sequence[Sql]) -> Ast:
    return s.or_(*(_format(args, name) for name in _UTF8))


def utf8_text(ast: Ast, engine: Engine) -> Ast:
    """The text of UTF-8 bytes; NULL if invalid."""
    if engine is Engine.SPARK:
        return s.call("TRY_VALIDATE_UTF8", s.string(ast))
    return s.call("TRY", s.call("DECODE", ast))


def _convert_from(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.case((_utf8_name(args), utf8_text(args[0].ast, engine)))


def _convert_to(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    text = args[0].ast
    encoded = (
        s.call("ENCODE", text, s.text("utf-8"))
        if engine is Engine.SPARK
        else s.call("ENCODE", text)
    )
    return s.case((_utf8_name(args), encoded))


_CONVERT_ERRORS = (
    ErrorRule(
        lambda _engine, args, _typ: s.not_(_utf8_name(args)),
        lambda _engine, args, _typ: s.concat(
            s.text("invalid encoding name '"), args[1].ast, s.text("'")
        ),
    ),
    ErrorRule(
        lambda engine, args, _typ: s.is_null(utf8_text(args[0].ast, engine)),
        lambda _engine, args, _typ: s.concat(
            s.text("invalid byte sequence '\\x"),
            s.call("LOWER", s.call("HEX", args[0].ast)),
            s.text("' for encoding 'UTF8'"),
        ),
    ),
)


# --- digests -----------------------------------------------------------------------------------------

_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    name: (lambda data, name=name: hashlib.new(name, data).digest())  # type: ignore[misc]
    for name in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
}


def known_bytes(arg: Sql) -> bytes | None:
    """The bytes of a constant; None for anything else."""
    ast = arg.ast
    while isinstance(ast, exp.Cast | exp.Paren):
        ast = ast.this
    if isinstance(ast, exp.Anonymous) and str(ast.this).upper() == "UNHEX":
        inner = s.literal_of(ast.expressions[0])
        return None if inner is None else bytes.fromhex(inner.name)
    return ast.name.encode() if isinstance(ast, exp.Literal) else None


def _constant_digest(name: str, args: Sequence[Sql], make: Callable[..., bytes]) -> Ast:
    if any(map(constant_null, args)):
        return s.call("UNHEX", s.null())
    known = [known_bytes(arg) for arg in args]
    if any(data is None for data in known):
        raise Unsupported(f"{name} of anything but constants is not supported")
    return s.call("UNHEX", s.text(make(*known).hex().upper()))


def constant_null(arg: Sql) -> bool:
    """Whether an argument is a literal NULL of any type."""
    ast = arg.ast
    while isinstance(ast, exp.Cast | exp.Paren):
        ast = ast.this
    if isinstance(ast, exp.Anonymous) and str(ast.this).upper() == "UNHEX":
        return isinstance(ast.expressions[0], exp.Null)
    return isinstance(ast, exp.Null)


def _digest(name: str) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast = args[0].ast
        if name in ("md5", "sha1", "sha256"):
            if engine is Engine.SPARK and name == "sha256":
                return s.call("UNHEX", s.call("SHA2", ast, s.num(256)))
            return s.call("UNHEX", s.call(name.upper(), ast))
        if engine is Engine.SPARK:
            return s.call("UNHEX", s.call("SHA2", ast, s.num(int(name[3:]))))
        return _constant_digest(name, args[:1], _DIGESTS[name])

    return value


def _named_digest(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    name = s.literal_of(args[1].ast)
    if name is None:
        raise Unsupported("digest takes a literal algorithm")
    if name.name.lower() not in _DIGESTS:
        return s.call("UNHEX", s.null())
    return _digest(name.name.lower())(engine, args[:1], typ)


def _hmac(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    name = s.literal_of(args[2].ast)
    if name is None:
        raise Unsupported("hmac takes a literal algorithm")
    algorithm = name.name.lower()
    if algorithm not in _DIGESTS:
        return s.call("UNHEX", s.null())
    return _constant_digest(
        "hmac", args[:2], lambda data, key: hmac.new(key, data, algorithm).digest()
    )


def _unknown_algorithm(place: int) -> ErrorRule:
    def condition(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = s.literal_of(args[place].ast)
        return s.boolean(known is not None and known.name.lower() not in _DIGESTS)

    return ErrorRule(
        condition,
        lambda _engine, args, _typ: s.concat(
            s.text("invalid hash algorithm '"), args[place].ast, s.text("'")
        ),
    )


def _crc32(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        return s.call("CRC32", args[0].ast)
    known = known_bytes(args[0])
    if constant_null(args[0]):
        return s.null()
    if known is None:
        raise Unsupported("crc32 of anything but constants is not supported")
    return s.num(zlib.crc32(known))


def _digests() -> list[ScalarFunc]:
    functions = [
        scalar("md5_bytea", "md5", (BYTEA,), TEXT, asts(lambda ast: s.call("MD5", ast))),
        *(
            scalar(name, name, (BYTEA,), BYTEA, _digest(name), explain=f'digest({{0}}, "{name}")')
            for name in _DIGESTS
            if name[:3] == "sha" and name != "sha1"
        ),
    ]
    for kind, typ in (("text", TEXT), ("bytea", BYTEA)):
        functions += [
            scalar(
                f"digest_{kind}", "digest", (typ, TEXT), BYTEA, _named_digest, _unknown_algorithm(1)
            ),
            scalar(f"hmac_{kind}", "hmac", (typ, typ, TEXT), BYTEA, _hmac, _unknown_algorithm(2)),
            scalar(f"crc32_{kind}", "crc32", (typ,), SqlType("uint4"), _crc32),
        ]
    return functions


# --- bytes -------------------------------------------------------------------------------------------


def _bytes_between(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """A substring of bytes, from their hexadecimal digits; positions before the first exist but are empty."""
    start = s.big(args[1].ast)
    first = s.at_least(start, s.big(s.num(1)))
    begin = s.integer(
        s.at_most(
            s.add(
                s.mul(s.sub(s.at_most(first, s.big(s.num(2**29))), s.num(1)), s.num(2)), s.num(1)
            ),
            s.big(s.num(2**30)),
        )
    )
    digits = s.call("HEX", args[0].ast)
    del engine
    if len(args) == 2:
        return s.call("UNHEX", s.call("SUBSTRING", digits, begin))
    end = s.add(start, s.big(s.at_least(args[2].ast, s.num(0))))
    span = s.at_most(s.at_least(s.sub(end, first), s.big(s.num(0))), s.big(s.num(2**29)))
    return s.call("UNHEX", s.call("SUBSTRING", digits, begin, s.integer(s.mul(span, s.num(2)))))


_NEGATIVE = ErrorRule(
    asts(lambda _ast, _start, count: s.lt(count, s.num(0))), "negative substring length not allowed"
)


def _bytes() -> list[ScalarFunc]:
    functions = []
    for name in ("substring", "substr"):
        functions += [
            scalar(f"{name}_bytea", name, (BYTEA, INTEGER), BYTEA, _bytes_between),
            scalar(
                f"{name}_bytea_for",
                name,
                (BYTEA, INTEGER, INTEGER),
                BYTEA,
                _bytes_between,
                _NEGATIVE,
            ),
        ]
    functions.append(scalar("concat_bytea", "||", (BYTEA, BYTEA), BYTEA, asts(s.concat)))
    functions.append(
        scalar(
            "bit_length_bytea",
            "bit_length",
            (BYTEA,),
            INTEGER,
            asts(lambda ast: s.mul(s.integer(s.call("OCTET_LENGTH", ast)), s.num(8))),
        )
    )
    return functions


def _uuid5(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """A UUID of version 5: the first half of a SHA-1 over the namespace's bytes and the name's."""
    space = s.call("REPLACE", args[0].ast, s.text("-"), s.text(""))
    digest = s.call(
        "LOWER",
        s.call("SHA1", s.call("UNHEX", s.concat(space, s.call("HEX", args[1].ast)))),
    )
    variant = s.call("SUBSTRING", digest, s.num(17), s.num(1))
    marked = s.call("TRANSLATE", variant, s.text("0123456789abcdef"), s.text("89ab89ab89ab89ab"))
    pieces = [
        s.call("SUBSTRING", digest, s.num(at), s.num(n))
        for at, n in ((1, 8), (9, 4), (14, 3), (18, 3), (21, 12))
    ]
    first, second, third, fourth, last = pieces
    dash = s.text("-")
    return s.concat(first, dash, second, dash, s.text("5"), third, dash, marked, fourth, dash, last)


FUNCTIONS: tuple[ScalarFunc, ...] = (
    scalar("uuid_generate_v5", "uuid_generate_v5", (UUID, TEXT), UUID, _uuid5),
    scalar("initcap", "initcap", (TEXT,), TEXT, _initcap),
    scalar("chr", "chr", (INTEGER,), TEXT, _chr, *_CHR_ERRORS),
    scalar("encode", "encode", (BYTEA, TEXT), TEXT, _encode, _FORMAT_RULE, within(_encoded_size)),
    scalar(
        "decode",
        "decode",
        (TEXT, TEXT),
        BYTEA,
        _decode,
        _FORMAT_RULE,
        ErrorRule(lambda e, args, typ: s.is_null(_decode(e, args, typ)), _undecodable),
    ),
    scalar("convert_from", "convert_from", (BYTEA, TEXT), TEXT, _convert_from, *_CONVERT_ERRORS),
    scalar("convert_to", "convert_to", (TEXT, TEXT), BYTEA, _convert_to, _CONVERT_ERRORS[0]),
    *(
        scalar(f"constant_time_eq_{kind}", "constant_time_eq", (typ, typ), BOOLEAN, asts(s.eq))
        for kind, typ in (("text", TEXT), ("bytea", BYTEA))
    ),
    *_digests(),
    *_bytes(),
)
