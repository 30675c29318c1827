"""The names of clauses and functions in errors about functions that a clause does not allow."""

from __future__ import annotations

#: Clauses named as ``WHERE clause``; the others (LIMIT, VALUES, FILTER, …) by their keyword alone.
_CLAUSES = frozenset(
    {"SELECT", "WHERE", "GROUP BY", "HAVING", "QUALIFY", "ORDER BY", "DISTINCT ON", "RETURNING"}
)
#: Materialize's own functions whose names do not begin with ``mz_``.
_OWN = frozenset({"csv_extract", "list_agg", "map_agg", "regexp_extract", "unnest"})


def clause_words(clause: str) -> str:
    """A clause as an error names it: ``WHERE clause``, ``ON clause``, ``LIMIT``."""
    if clause == "JOIN conditions":
        return "ON clause"
    return f"{clause} clause" if clause in _CLAUSES else clause


def not_allowed(what: str, clause: str, name: str) -> str:
    """``aggregate functions are not allowed in WHERE clause (function pg_catalog.sum)``."""
    own = name in _OWN or name.startswith("mz_")
    schema = "mz_catalog" if own else "pg_catalog"
    return f"{what} are not allowed in {clause_words(clause)} (function {schema}.{name})"
