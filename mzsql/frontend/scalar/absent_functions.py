"""Functions about what there is not here: collations, triggers, locks, network addresses.

Promise: each answers what PostgreSQL's does where there is none, so that tools which ask on the way can go on. One that would
do something is not among them: it would not have been done.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.frontend.scalar.defined import Defined, asking, overloads
from mzsql.repr import types as t
from mzsql.repr.types import SqlType

#: Functions of the number of a thing that there is not: whether it is visible, its definition.
_OF_NOTHING: Mapping[str, SqlType] = {
    "pg_collation_is_visible": t.BOOLEAN,
    "pg_conversion_is_visible": t.BOOLEAN,
    "pg_opclass_is_visible": t.BOOLEAN,
    "pg_opfamily_is_visible": t.BOOLEAN,
    "pg_statistics_obj_is_visible": t.BOOLEAN,
    "pg_ts_config_is_visible": t.BOOLEAN,
    "pg_ts_dict_is_visible": t.BOOLEAN,
    "pg_ts_parser_is_visible": t.BOOLEAN,
    "pg_ts_template_is_visible": t.BOOLEAN,
    "pg_get_functiondef": t.TEXT,
    "pg_get_statisticsobjdef": t.TEXT,
    "pg_get_function_sqlbody": t.TEXT,
}
_INTEGERS = SqlType("array", element=t.INTEGER)

ABSENT_FUNCTIONS: Mapping[str, tuple[Defined, ...]] = {
    **{
        name: overloads(f"CASE WHEN $1 IS NULL THEN NULL::{kind.kind} END", (t.OID,), result=kind)
        for name, kind in _OF_NOTHING.items()
    },
    "pg_get_triggerdef": overloads("NULL::text", (t.OID,), (t.OID, t.BOOLEAN)),
    "inet_client_addr": overloads("NULL::text", ()),
    "inet_server_addr": overloads("NULL::text", ()),
    "inet_client_port": overloads("NULL::integer", (), result=t.INTEGER),
    "inet_server_port": overloads("NULL::integer", (), result=t.INTEGER),
    "pg_current_logfile": overloads("NULL::text", (), (t.TEXT,)),
    "pg_blocking_pids": overloads("'{}'::integer[]", (t.INTEGER,), result=_INTEGERS),
    "pg_safe_snapshot_blocking_pids": overloads("'{}'::integer[]", (t.INTEGER,), result=_INTEGERS),
    "pg_jit_available": asking("false", ()),
    "pg_notification_queue_usage": overloads("0::double precision", (), result=t.DOUBLE),
    "pg_trigger_depth": overloads("0", (), result=t.INTEGER),
    "row_security_active": (
        *asking("CASE WHEN $1::regclass IS NOT NULL THEN false END", (t.TEXT,)),
        *asking("CASE WHEN $1 IS NOT NULL THEN false END", (t.OID,)),
    ),
}
