"""``normalize(text, form)``: Unicode normal forms.

Promise: NFC for any text in process; the other forms, which no engine has, for constants only, as the refusal says.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal, get_args

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text, scalar
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.expr.functions.text.encodings import constant_null, known_bytes
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import TEXT, SqlType

_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
#: The names of the forms in the grammar.
FORMS: tuple[_Form, ...] = get_args(_Form)


def _form(arg: Sql) -> _Form | None:
    text = constant_text(arg, "a normal form")
    return next((form for form in FORMS if text is not None and form == text.upper()), None)


def _normalized(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    text, form = args[0], _form(args[1])
    if form is None or constant_null(text):
        return s.cast(s.null(), typ, engine)
    known = known_bytes(text)
    if known is not None:
        return s.text(unicodedata.normalize(form, known.decode()))
    if form == "NFC" and engine is Engine.DUCKDB:
        return s.call("NFC_NORMALIZE", text.ast)
    raise Unsupported(f"normalize to {form} of anything but constants is not supported here")


def _no_form(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.boolean(not constant_null(args[1]) and _form(args[1]) is None)


def _refused(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.concat(s.text("invalid normalization form: "), args[1].ast)


FUNCTIONS: tuple[ScalarFunc, ...] = (
    scalar(
        "normalize", "normalize", (TEXT, TEXT), TEXT, _normalized, ErrorRule(_no_form, _refused)
    ),
)
