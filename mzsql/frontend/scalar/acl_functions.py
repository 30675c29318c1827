"""Functions of privileges: items of ACLs made and taken apart, words and letters of privileges.

Promise: as Materialize has them. An item of an ACL is a text (`mzsql.repr.types.MZ_ACLITEM`), so what takes one apart takes a text.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.frontend.parse.privileges import PRIVILEGES
from mzsql.frontend.scalar.defined import Defined
from mzsql.repr import types as t
from mzsql.repr.types import SqlType

_TEXTS = SqlType("array", element=t.TEXT)


def _words(text: str) -> str:
    """The words of a list of privileges, in capitals."""
    return f"regexp_split_to_array(upper(btrim({text})), '[[:space:]]*,[[:space:]]*')"


_KNOWN = "ARRAY[" + ", ".join(f"'{word}'" for word in PRIVILEGES) + "]"


def _checked(text: str, value: str) -> str:
    """A value where all words of a list are privileges; else an error."""
    unknown = (
        f"cardinality(array_remove({_words(text)}, NULL)) > 0 AND NOT ({_words(text)} <@ {_KNOWN})"
    )
    return f"""CASE WHEN mz_internal.mz_raise_if({unknown}, 'unrecognized privilege type: "' || {text} || '"')
        THEN NULL ELSE {value} END"""


def _letters(text: str) -> str:
    """The letters of a list of privileges in the order of an ACL."""
    words = _words(text)
    return " || ".join(
        f"CASE WHEN '{word}' = ANY ({words}) THEN '{letter}' ELSE '' END"
        for word, letter in PRIVILEGES.items()
    )


_ROLE_ID = "[usg][0-9]+"
_BAD_ROLE = "mz_internal.mz_raise_if({at} !~ '^{form}$', 'couldn''t parse role id: ' || {at})"
_MADE = f"""CASE
    WHEN {_BAD_ROLE.format(at="$1", form=f"({_ROLE_ID}|p)")} THEN NULL
    WHEN mz_internal.mz_raise_if($2 = 'p', 'mz_aclitem grantor cannot be PUBLIC role') THEN NULL
    WHEN {_BAD_ROLE.format(at="$2", form=_ROLE_ID)} THEN NULL
    ELSE {{made}} END"""
_OF_IDS = _MADE.format(
    made=_checked("$3", f"($1 || '=' || ({_letters('$3')}) || '/' || $2)::mz_aclitem")
)
_OF_NUMBERS = f"""CASE WHEN mz_internal.mz_raise_if($4, 'GRANT OPTION not yet supported') THEN NULL
    ELSE {_checked("$3", f"($1::text || '=' || ({_letters('$3')}) || '/' || $2::text)::aclitem")} END"""
_WORDS_OF_LETTERS = ", ".join(
    f"CASE WHEN position('{letter}' in $1) > 0 THEN '{word}' END"
    for word, letter in PRIVILEGES.items()
)
_NO_LETTER = f"""mz_internal.mz_raise_if($1 !~ '^[{"".join(PRIVILEGES.values())}]*$',
    'unrecognized privilege type: ' || $1)"""
#: The attributes of roles that are privileges on the system.
_SYSTEM = ("CREATEROLE", "CREATEDB", "CREATECLUSTER", "CREATENETWORKPOLICY")


def _one(args: tuple[SqlType, ...], sql: str, result: SqlType = t.TEXT) -> tuple[Defined, ...]:
    return (Defined(args, sql, result),)


def _strict(args: tuple[SqlType, ...], sql: str, result: SqlType = t.TEXT) -> tuple[Defined, ...]:
    """NULL where an argument is."""
    missing = " OR ".join(f"${number} IS NULL" for number in range(1, len(args) + 1))
    return _one(args, f"CASE WHEN {missing} THEN NULL ELSE {sql} END", result)


ACL_FUNCTIONS: Mapping[str, tuple[Defined, ...]] = {
    "make_mz_aclitem": _strict((t.TEXT, t.TEXT, t.TEXT), _OF_IDS, t.MZ_ACLITEM),
    "makeaclitem": _strict((t.OID, t.OID, t.TEXT, t.BOOLEAN), _OF_NUMBERS, t.ACLITEM),
    "mz_aclitem_grantee": _strict((t.TEXT,), "coalesce(nullif(split_part($1, '=', 1), ''), 'p')"),
    "mz_aclitem_grantor": _one((t.TEXT,), "split_part($1, '/', 2)"),
    "mz_aclitem_privileges": _one((t.TEXT,), "split_part(split_part($1, '=', 2), '/', 1)"),
    "mz_format_privileges": _one(
        (t.TEXT,),
        f"CASE WHEN {_NO_LETTER} THEN NULL WHEN $1 IS NOT NULL THEN array_remove(ARRAY[{_WORDS_OF_LETTERS}], NULL) END",
        _TEXTS,
    ),
    "mz_validate_privileges": _one(
        (t.TEXT,), _checked("$1", "CASE WHEN $1 IS NOT NULL THEN true END"), t.BOOLEAN
    ),
    "mz_validate_role_privilege": _one(
        (t.TEXT,),
        f"""CASE WHEN mz_internal.mz_raise_if(upper($1) NOT IN {_SYSTEM!r},
            'unrecognized role privilege type: ' || $1) THEN NULL WHEN $1 IS NOT NULL THEN true END""",
        t.BOOLEAN,
    ),
}
