"""Parsing EXPLAIN, SHOW, SET and transactions."""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.kinds import KIND, KINDS, LISTED, Kind
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.named import OBJECT_KINDS, OWN_KINDS, one_of
from mzsql.frontend.parse.pieces import Nesting, Parse, Pieces, Statements, each
from mzsql.frontend.parse.shows import show_table, shown_privileges
from mzsql.frontend.parse.variables import (
    assigned_name,
    reset_name,
    set_name,
    set_values,
    variable_name,
)
from mzsql.repr.errors import SqlSyntaxError, Unsupported, alike

EXPLAIN_STAGES = (
    ("RAW",),
    ("DECORRELATED",),
    ("LOCALLY", "OPTIMIZED"),
    ("OPTIMIZED",),
    ("PHYSICAL",),
)
#: What Materialize's EXPLAIN shows beside plans, and is not here.
_ABSENT = (
    ("QUERY",),
    ("PLAN", "INSIGHTS"),
    ("OPTIMIZER", "TRACE"),
    ("KEY", "SCHEMA"),
    ("VALUE", "SCHEMA"),
)
EXPLAIN_FORMATS = ("TEXT", "JSON", "SQL", "DOT")
#: Options of EXPLAIN … WITH (…); ``node_ids`` is an older spelling of ``node identifiers``.
EXPLAIN_OPTIONS = frozenset(
    """
    arity|cardinality|column names|equivalences|filter pushdown|humanized expressions|join implementations|keys|linear chains|
    node identifiers|no fast path|no notices|non negative|raw plans|raw syntax|raw|redacted|subtree size|timing|types|
    enable eager delta joins|enable new outer join lowering|enable variadic left join lowering|enable letrec fixpoint analysis|
    enable reduce mfp fusion|enable cardinality estimates|enable join prioritize arranged|enable projection pushdown after relation cse|
    enable reduce reduction|enable coalesce case transform|reoptimize imported views
    """.replace("\n", " ")
    .replace("    ", "")
    .strip()
    .replace("| ", "|")
    .split("|")
)
#: What EXPLAIN ANALYZE is about, and what EXPLAIN is.
_ANALYZED = (("MATERIALIZED", "VIEW"), ("INDEX",))
_EXPLAINED = (("VIEW",), *_ANALYZED)
_PROPERTIES = tuple((name.upper(),) for name in st.ANALYZED)
_CLUSTER_PROPERTIES = tuple((name.upper(),) for name in st.ANALYZED_OF_CLUSTERS)
#: Things that Materialize's SHOW lists and that do not exist here.
_UNKNOWN_KINDS = (("NETWORK", "POLICIES"),)
_ISOLATION = (
    ("STRICT", "SERIALIZABLE"),
    ("STRONG", "SESSION", "SERIALIZABLE"),
    ("SERIALIZABLE",),
    ("REPEATABLE", "READ"),
    ("READ", "COMMITTED"),
    ("READ", "UNCOMMITTED"),
)
_OPTION_ENDS = (TokenType.COMMA, TokenType.EQ, TokenType.R_PAREN, TokenType.L_PAREN)


# --- EXPLAIN --------------------------------------------------------------------------------------


def explain(pieces: Pieces, parse_statement: Parse) -> st.Explain:
    """EXPLAIN [stage PLAN] [WITH (…)] [AS format] [FOR] …, after EXPLAIN.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: Materialize has it, and it is not here.
    """
    position = pieces.position()
    absent = pieces.take_one(_ABSENT)
    if absent is not None:
        raise Unsupported(f"EXPLAIN {absent.upper()} is not supported", position=position)
    stage = pieces.take_one(EXPLAIN_STAGES)
    if stage is not None:
        pieces.expect("PLAN")
    else:
        pieces.take("PLAN")
    options: tuple[tuple[str, bool | int | str], ...] = ()
    if pieces.peek("WITH", "("):  # else WITH begins the query
        pieces.expect("WITH")
        options = _explain_options(pieces)
    fmt = _explain_format(pieces, EXPLAIN_FORMATS)
    pieces.take("FOR")
    replan = pieces.take("REPLAN")
    # BROKEN means that planning may fail halfway; here it fails as a whole or not at all.
    if not replan:
        pieces.take("BROKEN")
    explainee = _explainee(pieces, parse_statement, replan=replan)
    stage = stage or ("locally optimized" if _is_view(explainee) else "optimized")
    return st.Explain(pieces.source, stage, fmt, options, explainee, replan)


def _is_view(explainee: st.Statement) -> bool:
    """Whether what is explained is a view, whose last plan of its own is the locally optimized one."""
    if isinstance(explainee, st.ObjectRef):
        return explainee.kind == "view"
    return isinstance(explainee, st.CreateView) and not explainee.materialized


def _explain_format(pieces: Pieces, formats: tuple[str, ...]) -> str:
    if not pieces.take_token(TokenType.ALIAS):
        return "text"
    if "SQL" in formats and pieces.take("VERBOSE"):
        # What later versions of Materialize call a plan's text in full; there is no other here.
        pieces.expect("TEXT")
        return "text"
    return pieces.expect_one(tuple((one,) for one in formats))


def _explain_options(pieces: Pieces) -> tuple[tuple[str, bool | int | str], ...]:
    """Options in parentheses; a comma may stand behind the last one."""
    pieces.open()
    found: list[tuple[str, bool | int | str]] = []
    while not pieces.take_token(TokenType.R_PAREN):
        position = pieces.position()
        name = _explain_option(pieces, position)
        if any(name == before for before, _ in found):
            raise SqlSyntaxError(f"{name.upper()} specified more than once", position=position)
        found.append((name, pieces.boolean()))
        if not pieces.take_token(TokenType.COMMA) and not pieces.peek_token(TokenType.R_PAREN):
            pieces.expected("right parenthesis")
    return tuple(found)


def _explain_option(pieces: Pieces, position: int) -> str:
    """The name of an option: its words, in either spelling of the spaces between them."""
    words: list[str] = []
    while not pieces.at_end() and not pieces.peek_token(*_OPTION_ENDS):
        words.append(pieces.parser._curr.text.lower())
        pieces.parser._advance()
    name = " ".join(words).replace("_", " ")
    name = "node identifiers" if name == "node ids" else name
    if name not in EXPLAIN_OPTIONS:
        raise SqlSyntaxError(
            f"Expected a valid explain plan option name, found {' '.join(words)!r}",
            position=position,
            hint=alike(name, EXPLAIN_OPTIONS),
        )
    return name


def _explainee(pieces: Pieces, parse_statement: Parse, *, replan: bool) -> st.Statement:
    kind = pieces.take_one(_EXPLAINED)
    if kind is not None:
        return st.ObjectRef(pieces.source, kind, pieces.name())
    if replan:
        pieces.expected("one of VIEW, MATERIALIZED VIEW or INDEX")
    if pieces.take("SHOW"):
        shown = show(pieces)
        if isinstance(shown, st.Select):
            return shown
        if not isinstance(shown, st.Show):
            raise Unsupported("EXPLAIN of this kind of SHOW is not supported")
        source = pieces.source
        return st.Select(source, show_table(shown), (source.start, source.end))
    # Of all other statements only what defines something has a plan of its own.
    return parse_statement(pieces) if pieces.peek_token(TokenType.CREATE) else pieces.select()


def explain_timestamp(pieces: Pieces) -> st.Explain:
    """EXPLAIN TIMESTAMP [AS TEXT | JSON] FOR query, after TIMESTAMP.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    fmt = _explain_format(pieces, ("TEXT", "JSON"))
    pieces.expect("FOR")
    return st.Explain(pieces.source, "timestamp", fmt, (), pieces.select())


def explain_pushdown(pieces: Pieces) -> st.Explain:
    """EXPLAIN FILTER PUSHDOWN FOR query | MATERIALIZED VIEW name, after PUSHDOWN.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    pieces.expect("FOR")
    of_view = pieces.take("MATERIALIZED", "VIEW")
    explainee = (
        st.ObjectRef(pieces.source, "materialized view", pieces.name())
        if of_view
        else pieces.select()
    )
    return st.Explain(pieces.source, "filter pushdown", "text", (), explainee)


def explain_analyze(pieces: Pieces) -> st.ExplainAnalyze:
    """EXPLAIN ANALYZE CPU | MEMORY | HYDRATION, … [WITH SKEW] FOR INDEX | MATERIALIZED VIEW name [AS SQL], or
    EXPLAIN ANALYZE CLUSTER CPU | MEMORY, … [WITH SKEW] [AS SQL], after ANALYZE.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: it is EXPLAIN ANALYZE of PostgreSQL, which runs a query.
    """
    position = pieces.position()
    of_cluster = pieces.take("CLUSTER")
    properties: dict[str, None] = {}
    while True:
        one = pieces.take_one(_CLUSTER_PROPERTIES if of_cluster else _PROPERTIES)
        if one is None:
            raise Unsupported(
                "EXPLAIN ANALYZE is supported for what runs all the time, by what it takes",
                position=position,
                hint="EXPLAIN ANALYZE CPU, MEMORY, HYDRATION [WITH SKEW] FOR MATERIALIZED VIEW v; or FOR INDEX i; or"
                " EXPLAIN ANALYZE CLUSTER CPU, MEMORY [WITH SKEW].",
            )
        properties[one] = None
        if not pieces.take_token(TokenType.COMMA):
            break
    skew = pieces.take("WITH", "SKEW")
    about: st.ObjectRef | None = None
    if not of_cluster:
        pieces.expect("FOR")
        kind = pieces.expect_one(_ANALYZED, "one of MATERIALIZED VIEW or INDEX")
        about = st.ObjectRef(pieces.source, kind, pieces.name())
    as_sql = pieces.take_token(TokenType.ALIAS)
    if as_sql:
        pieces.expect("SQL")
    return st.ExplainAnalyze(pieces.source, tuple(properties), skew, about, as_sql)


# --- SHOW -----------------------------------------------------------------------------------------


def _is_kept(kind: Kind) -> bool:
    """Whether the catalog keeps how a thing of this kind was created."""
    return kind.in_schema and kind.made_by == "users"


def show_create(pieces: Pieces, *, redacted: bool = False) -> cs.ShowCreateCluster | st.ShowCreate:
    """SHOW [REDACTED] CREATE …, after CREATE.

    Raises:
        SqlSyntaxError: no kind of things follows, or no name.
        Unsupported: nothing keeps how things of this kind were created.
    """
    kind = pieces.expect_one(
        OBJECT_KINDS, one_of((one for one in KINDS if _is_kept(one)), "CLUSTER")
    )
    if kind == "cluster" and not redacted:
        return cs.ShowCreateCluster(pieces.source, pieces.plain_name())
    if not KIND[kind].in_schema:
        shown = "SHOW REDACTED CREATE" if redacted else "SHOW CREATE"
        raise Unsupported(f"{shown} {kind.upper()} is not supported", position=pieces.position())
    return st.ShowCreate(pieces.source, kind, pieces.name(), redacted)


def show(pieces: Pieces) -> st.Statement:
    """SHOW …, after SHOW: of objects, of privileges, of a variable.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: Materialize lists it, and there is no such thing here.
    """
    if pieces.take("CREATE"):
        return show_create(pieces)
    if pieces.take("REDACTED"):
        pieces.expect("CREATE")
        return show_create(pieces, redacted=True)
    start = pieces.position() - 1
    shown = _listed(pieces)
    if shown is not None:
        if not pieces.peek_token(TokenType.WHERE):
            return shown
        return _ordered(pieces, _filtered(pieces, show_table(shown)), start)
    if pieces.take("SCHEMA"):
        # SHOW SCHEMA is the first existing schema of the search path, which is not a variable.
        query = exp.select(exp.alias_(exp.Anonymous(this="current_schema"), "schema"))
        return st.Select(pieces.source, query, (start, pieces.read_to()))
    granted = shown_privileges(pieces)
    if granted is not None:
        if pieces.peek_token(TokenType.WHERE):
            granted = granted.where(pieces.parser._parse_where().this)
        return _ordered(pieces, granted, start)
    _refuse_unknown(pieces, start + 1)
    return st.ShowVariable(pieces.source, variable_name(pieces))


def shown_query(pieces: Pieces) -> exp.Expr:
    """SHOW … in a FROM clause, as a query.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    pieces.expect("SHOW")
    shown = _listed(pieces)
    if shown is None:
        # A variable, or what only begins like a list: the parser of queries looks at the first word alone.
        pieces.expected("what SHOW lists")
    return _filtered(pieces, show_table(shown))


def _ordered(pieces: Pieces, query: exp.Select, start: int) -> st.Select:
    query = query.order_by(exp.Literal.number(1), copy=False)
    return st.Select(pieces.source, query, (start, pieces.read_to()))


def _listed(pieces: Pieces) -> st.Show | None:
    """What follows SHOW, where it lists things of a kind; else None."""
    on: st.Name | None = None
    schema: st.Name | None = None
    if pieces.take("COLUMNS"):
        if not pieces.take("FROM"):
            pieces.expect("IN")
        on = pieces.name()
        return st.Show(pieces.source, "columns", on=on, like=_like(pieces))
    kind = pieces.take_one(LISTED)
    if kind is None:
        return None
    # IN CLUSTER may stand on either side of the schema.
    cluster = pieces.in_cluster()
    if kind in ("indexes", "subsources") and pieces.take("ON"):
        on = pieces.name()
    elif pieces.take("FROM") or pieces.take("IN"):
        schema = pieces.name()
    cluster = cluster or pieces.in_cluster()
    return st.Show(pieces.source, kind, schema, on, cluster, _like(pieces))


def _like(pieces: Pieces) -> str | None:
    return pieces.string() if pieces.take("LIKE") else None


def _filtered(pieces: Pieces, query: exp.Select) -> exp.Select:
    """The query with the optional WHERE of a SHOW."""
    if pieces.peek_token(TokenType.WHERE):
        query.set("where", pieces.parser._parse_where())
    return query


def _refuse_unknown(pieces: Pieces, position: int) -> None:
    what = pieces.take_one(_UNKNOWN_KINDS)
    if what is not None:
        raise Unsupported(
            f"SHOW {what.upper()} is not supported",
            position=position,
            hint="Every role may do everything. There are SHOW ROLES, SHOW ROLE MEMBERSHIP, SHOW [DEFAULT] PRIVILEGES.",
        )


# --- variables ------------------------------------------------------------------------------------


def set_variable(pieces: Pieces) -> st.SetVariable:
    """SET [SESSION | LOCAL] name {TO | =} values, after SET.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    local = pieces.take("LOCAL")
    if not local:
        pieces.take("SESSION")
    name = set_name(pieces)
    return st.SetVariable(pieces.source, name, set_values(pieces), local)


def reset(pieces: Pieces) -> st.SetVariable:
    """RESET name, after RESET.

    Raises:
        SqlSyntaxError: no name follows.
    """
    return st.SetVariable(pieces.source, reset_name(pieces), None)


def alter_system(pieces: Pieces) -> st.SetVariable:
    """ALTER SYSTEM SET | RESET, after SYSTEM.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    if pieces.take("SET"):
        name = assigned_name(pieces)
        return st.SetVariable(pieces.source, name, set_values(pieces), system=True)
    pieces.expect("RESET")
    return st.SetVariable(pieces.source, variable_name(pieces), None, system=True)


# --- transactions ---------------------------------------------------------------------------------


def begin(pieces: Pieces) -> st.Transaction:
    """BEGIN [TRANSACTION | WORK] or START TRANSACTION, after the first word of it.

    Raises:
        SqlSyntaxError: no level of isolation follows where one must.
    """
    _transaction_word(pieces)
    return _transaction(pieces, "begin")


def set_transaction(pieces: Pieces) -> st.Transaction:
    """SET TRANSACTION …, after these words.

    Raises:
        SqlSyntaxError: as by `begin`.
    """
    return _transaction(pieces, "set")


def set_characteristics(pieces: Pieces) -> st.Transaction:
    """SET SESSION CHARACTERISTICS AS TRANSACTION …, after these words.

    Raises:
        SqlSyntaxError: as by `begin`.
    """
    return _transaction(pieces, "set session")


def _transaction_word(pieces: Pieces) -> None:
    if not pieces.take("TRANSACTION"):
        pieces.take("WORK")


def _transaction(pieces: Pieces, kind: str) -> st.Transaction:
    isolation: str | None = None
    read_only: bool | None = None
    while True:
        if pieces.take("ISOLATION", "LEVEL"):
            isolation = pieces.expect_one(_ISOLATION, "isolation level")
        elif pieces.take("READ", "ONLY"):
            read_only = True
        elif pieces.take("READ", "WRITE"):
            read_only = False
        elif not pieces.take_token(TokenType.COMMA):
            return st.Transaction(pieces.source, kind, isolation, read_only)


def _end(pieces: Pieces, kind: str) -> st.Transaction:
    _transaction_word(pieces)
    if pieces.take("AND", "CHAIN"):
        raise Unsupported(f"{kind.upper()} AND CHAIN not yet supported", position=pieces.position())
    pieces.take("AND", "NO", "CHAIN")
    return st.Transaction(pieces.source, kind)


def commit(pieces: Pieces) -> st.Transaction:
    """COMMIT or END, after that word.

    Raises:
        Unsupported: another transaction is to follow (AND CHAIN).
    """
    return _end(pieces, "commit")


def rollback(pieces: Pieces) -> st.Transaction:
    """ROLLBACK or ABORT, after that word.

    Raises:
        Unsupported: another transaction is to follow (AND CHAIN).
    """
    return _end(pieces, "rollback")


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("EXPLAIN", "TIMESTAMP"), explain_timestamp),
    (("EXPLAIN", "FILTER", "PUSHDOWN"), explain_pushdown),
    (("EXPLAIN", "ANALYZE"), explain_analyze),
    (("SHOW",), show),
    (("SET",), set_variable),
    (("SET", "TRANSACTION"), set_transaction),
    (("SET", "SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"), set_characteristics),
    (("RESET",), reset),
    (("ALTER", "SYSTEM"), alter_system),
    (("BEGIN",), begin),
    (("START", "TRANSACTION"), begin),
    (("COMMIT",), commit),
    (("END",), commit),
    (("ROLLBACK",), rollback),
    (("ABORT",), rollback),
)
#: Those that have another statement in them.
NESTING: Nesting = ((("EXPLAIN",), explain),)
#: Those that other systems have too (`mzsql.frontend.parse.heads`). A bare BEGIN starts a script in Spark's, which END ends; SET and RESET
#: are about its own settings.
OTHERS = (
    ("EXPLAIN",),
    ("SHOW",),
    ("SET",),
    ("SET", "TRANSACTION"),
    ("SET", "SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"),
    ("RESET",),
    ("BEGIN",),
    ("END",),
)
#: What SHOW lists in other systems' SQL too.
_SHARED_SHOWN = (("TABLES",), ("VIEWS",), ("SCHEMAS",), ("DATABASES",))
#: Their forms that no other system has.
OWN = (
    *(("EXPLAIN", *stage, "PLAN") for stage in ((), *EXPLAIN_STAGES)),
    *each(("SHOW CREATE",), OWN_KINDS),
    ("SHOW", "REDACTED", "CREATE"),
    ("SHOW", "CLUSTER"),
    *each(("SHOW",), tuple(kind for kind in LISTED if kind not in _SHARED_SHOWN)),
    *each(("SHOW",), (("PRIVILEGES",), ("DEFAULT", "PRIVILEGES"), ("ROLE", "MEMBERSHIP"))),
    *each(("BEGIN",), (("TRANSACTION",), ("WORK",), ("ISOLATION",), ("READ",))),
)
#: Those that others have too and that go by the relation whose name follows.
NAMED = each(("SHOW CREATE",), (("TABLE",), ("VIEW",)))
