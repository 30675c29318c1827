"""Parsing SUBSCRIBE, cursors and prepared statements."""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.pieces import Statements
from mzsql.frontend.parse.session import SessionParser
from mzsql.repr.errors import SqlSyntaxError, Unsupported

#: PostgreSQL's FETCH directions that a forward-only cursor does not support.
_BACKWARD = (("PRIOR",), ("FIRST",), ("LAST",), ("ABSOLUTE",), ("RELATIVE",), ("BACKWARD",))
#: Statements about the session or the transaction cannot be prepared.
_NOT_PREPARED = (
    *("PREPARE", "EXECUTE", "DEALLOCATE", "DECLARE", "FETCH", "CLOSE", "SET", "RESET", "DISCARD"),
    *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"),
)


class CursorParser(SessionParser):
    """Parses SUBSCRIBE, cursors and prepared statements."""

    def nested(self) -> st.Statement:
        """A statement inside another; overridden by the parser of all statements."""
        raise AssertionError

    # --- SUBSCRIBE --------------------------------------------------------------------------------

    def subscribe(self) -> st.Subscribe:
        """SUBSCRIBE [TO] relation, with its clauses in any order."""
        self.at("TO")
        what = self._subscribed()
        found: dict[str, object] = {}
        while self.p._curr and not self._at(TokenType.R_PAREN):
            position = self.position()
            clause = self._subscribe_clause()
            if clause is None:
                break
            if found.keys() & clause.keys():
                raise SqlSyntaxError("a clause of SUBSCRIBE is given twice", position=position)
            if {"envelope", "order"} <= {*found, *clause}:
                raise SqlSyntaxError(
                    "ENVELOPE and WITHIN TIMESTAMP ORDER BY cannot be used together",
                    position=position,
                )
            found |= clause
        return st.Subscribe(self.source, what, **found)  # type: ignore[arg-type]

    def _subscribed(self) -> st.Name | exp.Expr | st.Show:
        if not self.p._match(TokenType.L_PAREN):
            return self.name()
        what: exp.Expr | st.Show
        if self.at("SHOW"):
            shown = self.show()
            if not isinstance(shown, st.Show):
                raise Unsupported("SUBSCRIBE to this kind of SHOW is not supported")
            what = shown
        else:
            what = self.p.parse_query()
        self.p._match_r_paren()
        return what

    def _subscribe_clause(self) -> dict[str, object] | None:
        if self.at("WITH"):
            return self._subscribe_options()
        if self.p._match(TokenType.ALIAS):
            self.need("OF")
            at_least = self.at("AT", "LEAST")
            return {"as_of": self.expression(), "at_least": at_least}
        if self.at("UP", "TO"):
            return {"up_to": self.expression()}
        if self.at("ENVELOPE"):
            envelope = self.one_of((("UPSERT",), ("DEBEZIUM",)))
            if envelope is None:
                self.p.expected("one of DEBEZIUM or UPSERT")
            if not self.p._match(TokenType.L_PAREN):
                self.p.expected("left parenthesis")
            self.need("KEY")
            keys = self.names_in_parentheses()
            if not keys:
                self.p.expected("left parenthesis")
            self.p._match_r_paren()
            return {"envelope": envelope, "keys": keys}
        if self.at("WITHIN", "TIMESTAMP"):
            order = self.p._parse_order()
            if order is None:
                self.p.expected("ORDER BY")
            return {"order": tuple(order.expressions)}
        return None

    def _subscribe_options(self) -> dict[str, object]:
        bare = not self.p._match(TokenType.L_PAREN)
        found: dict[str, object] = {}
        while True:
            position = self.position()
            name = self.one_of((("SNAPSHOT",), ("PROGRESS",)))
            if name is None:
                self.p.expected("one of PROGRESS or SNAPSHOT")
            assert name is not None
            if name in found:
                raise SqlSyntaxError(f"{name.upper()} specified more than once", position=position)
            found[name] = self.boolean()
            if not self.p._match(TokenType.COMMA):
                break
        if not bare:
            self.p._match_r_paren()
        return found

    def copied(self) -> st.Select | st.Subscribe:
        """The query or SUBSCRIBE in the parentheses of COPY (…) TO."""
        return self.subscribe() if self.at("SUBSCRIBE") else self.select()

    # --- cursors ----------------------------------------------------------------------------------

    def declare(self) -> st.Declare:
        """DECLARE name CURSOR [WITHOUT HOLD] FOR statement."""
        name = self.identifier()
        position = self.position()
        if self.one_of((("BINARY",), ("INSENSITIVE",), ("ASENSITIVE",), ("SCROLL",))):
            raise Unsupported("only plain cursors are supported", position=position)
        self.at("NO", "SCROLL")
        self.need("CURSOR")
        if self.at("WITH", "HOLD"):
            raise Unsupported("WITH HOLD cursors are not supported", position=position)
        self.at("WITHOUT", "HOLD")
        self.need("FOR")
        if self.at("SUBSCRIBE"):
            return st.Declare(self.source, name, self.subscribe())
        return st.Declare(self.source, name, self.select())

    def fetch(self) -> st.Fetch:
        """FETCH [FORWARD | NEXT] [n | ALL] [FROM | IN] name [WITH (timeout = …)]."""
        position = self.position()
        if self.one_of(_BACKWARD):
            raise Unsupported("cursors can only be read forward", position=position)
        count: int | None = 1
        if not self.at("NEXT"):
            self.at("FORWARD")
            count = self._fetch_count()
        if not self.at("FROM"):
            self.at("IN")
        name = self.identifier()
        timeout = None
        if self.at("WITH"):
            if not self.p._match(TokenType.L_PAREN):
                self.p.expected("left parenthesis")
            self.need("TIMEOUT")
            self.p._match(TokenType.EQ)
            timeout = self._value()
            self.p._match_r_paren()
        return st.Fetch(self.source, name, count, timeout)

    def _fetch_count(self) -> int | None:
        if self.at("ALL"):
            return None
        position = self.position()
        if self.p._match(TokenType.DASH):
            raise Unsupported("cursors can only be read forward", position=position)
        if not self._at(TokenType.NUMBER):
            return 1
        self.p._advance()
        text = str(self.p._prev.text)
        if not text.isdigit():
            raise SqlSyntaxError(
                f'Expected literal unsigned integer, found number "{text}"', position=position
            )
        return int(text)

    def close(self) -> st.Close:
        """CLOSE name | ALL."""
        return st.Close(self.source, None if self.at("ALL") else self.identifier())

    # --- prepared statements ------------------------------------------------------------------------

    def prepare(self) -> st.Prepare:
        """PREPARE name [(types)] AS statement."""
        name = self.identifier()
        types: list[exp.DataType] = []
        if self.p._match(TokenType.L_PAREN):
            types.append(self._type())
            while self.p._match(TokenType.COMMA):
                types.append(self._type())
            self.p._match_r_paren()
        if not self.p._match(TokenType.ALIAS):
            self.p.expected("AS")
        start = self.position() - 1
        word = str(self.p._curr.text).upper() if self.p._curr else ""
        if word in _NOT_PREPARED:
            self.p.expected("a statement that can be prepared")
        statement = self.nested()
        text = self.source.text[start : self.p._prev.end + 1]
        return st.Prepare(self.source, name, tuple(types), text, statement)

    def _type(self) -> exp.DataType:
        typ = self.p._parse_types(check_func=False, schema=False)
        if not isinstance(typ, exp.DataType):
            self.p.expected("a data type")
        assert isinstance(typ, exp.DataType)
        return typ

    def execute(self) -> st.Execute:
        """EXECUTE name [(expressions)]."""
        name = self.identifier()
        arguments: list[st.Argument] = []
        if self.p._match(TokenType.L_PAREN) and not self.p._match(TokenType.R_PAREN):
            arguments.append(self._argument())
            while self.p._match(TokenType.COMMA):
                arguments.append(self._argument())
            self.p._match_r_paren()
        return st.Execute(self.source, name, tuple(arguments))

    def _argument(self) -> st.Argument:
        expression = self.expression()
        start, end = expression.meta["span"]
        return st.Argument(self.source.text[start:end], start + 1, expression)

    def deallocate(self) -> st.Deallocate:
        """DEALLOCATE [PREPARE] name | ALL."""
        self.at("PREPARE")
        return st.Deallocate(self.source, None if self.at("ALL") else self.identifier())

    def discard(self) -> st.Discard:
        """DISCARD ALL | TEMP | TEMPORARY."""
        what = self.one_of((("ALL",), ("TEMP",), ("TEMPORARY",), ("PLANS",), ("SEQUENCES",)))
        if what is None:
            self.p.expected("one of ALL, PLANS, SEQUENCES, TEMP or TEMPORARY")
        if what in ("plans", "sequences"):
            raise Unsupported(f"DISCARD {what.upper()} is not supported")
        return st.Discard(self.source, what == "all")


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("SUBSCRIBE",), CursorParser.subscribe),
    (("DECLARE",), CursorParser.declare),
    (("FETCH",), CursorParser.fetch),
    (("CLOSE",), CursorParser.close),
    (("PREPARE",), CursorParser.prepare),
    (("EXECUTE",), CursorParser.execute),
    (("DEALLOCATE",), CursorParser.deallocate),
    (("DISCARD",), CursorParser.discard),
)
#: What these statements begin with where no other system's SQL has them (`mzsql.frontend.parse.heads`). Spark's scripts have DECLARE and
#: FETCH too, within BEGIN … END; its EXECUTE IMMEDIATE runs a text.
OWN = (
    ("SUBSCRIBE",),
    ("FETCH",),
    ("CLOSE",),
    ("PREPARE",),
    ("EXECUTE",),
    ("DEALLOCATE",),
    ("DISCARD",),
)
#: A statement that begins like one of its own and is another system's.
OTHERS = (("EXECUTE", "IMMEDIATE"),)
