"""Untrusted SQL queries on a capture: the schema of its tables, and answers to read-only queries within limits."""

import re
import threading
from collections.abc import Iterator
from itertools import count

import duckdb

from harness import reading_limits
from harness.errors import RatchetError, UsageError
from harness.records import Capture, Cell, Column, Table
from harness.workbench.profiles.database import ON_DEMAND, RECORDED, Database, on_demand
from harness.workbench.profiles.op_times import origin
from harness.workbench.profiles.views import VIEWS
from harness.workbench.tables import columns, table, unit_of

# Statements that only read: a query, or the description of one.
_READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.RELATION)
_SCHEMA = columns("table;column;type;is_derived=derived;meaning=what it is!")
_LONGEST_TITLE = 60


def schema() -> tuple[Table, ...]:
    """Two tables: all tables and views, and the tables' columns with a mark for derived columns."""
    tables = [*RECORDED, *map(on_demand, ON_DEMAND)]
    rows = [
        (described.name, f"{described.sentence}{' (made on demand)' if described.rows else ''}") for described in tables
    ]
    rows += VIEWS.items()
    columns = [(described.name, *column) for described in tables for column in described.columns]
    note = (
        "Times are seconds from the capture's first event, on the devices' own clocks; an operation's bytes and FLOPs "
        "are those of one run. in_words(seconds), in_bytes(bytes) and in_percent(share) print them."
    )
    names = (*_SCHEMA[:1], *_SCHEMA[4:])
    return (
        table("tables", "Tables", "static", names, rows, (note,)),
        table("columns", "Columns", "static", _SCHEMA, columns, ("DESCRIBE NAME lists the columns of a view.",)),
    )


def ask(capture: Capture, query: str, top: int | None) -> tuple[Table, ...]:
    """The answer to each statement of `query`, with at most `top` rows.

    The statements can read only the tables, no file, network or setting. Each statement may use one processor, 512 MiB
    of memory including DuckDB's tables, and `reading_limits.SECONDS` seconds. Raises UsageError `bad-query` or
    RatchetError `too-large`.
    """
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise _bad_query(error) from error
    if not statements:
        raise UsageError("bad-query", "expected a query, got none; --schema lists the tables")
    for statement in statements:
        if statement.type not in _READS:
            raise UsageError(
                "bad-query",
                f"expected queries that only read, got {statement.type.name}: {statement.query.strip()[:80]}",
            )
    database = Database(capture)
    # Each statement alone: an apostrophe in a comment or a quoted name could hide a table that a later one names.
    for statement in statements:
        database.need(statement.query)
    for setting in ("enable_external_access = false", "lock_configuration = true"):
        database.connection.execute(f"set {setting}")
    return tuple(
        _answer(database, statement.query.strip(), top, place) for place, statement in enumerate(statements, 1)
    )


def _answer(database: Database, query: str, top: int | None, place: int) -> Table:
    connection, seconds = database.connection, reading_limits.SECONDS.value
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        answer = connection.execute(query)
        names = [column[0] for column in answer.description or ()]
        rows = answer.fetchall() if top is None else answer.fetchmany(top + 1)
    except duckdb.InterruptException:
        reading_limits.SECONDS.refuse(f"the query {query[:60]!r}", f"more than {seconds}")
    except duckdb.OutOfMemoryException as error:
        raise RatchetError(
            "too-large", f"the query {query[:60]!r} takes more memory than its limit: {_error_words(error)}"
        ) from error
    except duckdb.Error as error:
        raise _bad_query(error) from error
    finally:
        timer.cancel()
    notes = [f"The first {top} rows are shown (--top)."] if top is not None and len(rows) > top else []
    columns = [
        Column(name=name, title=name, unit=unit_of(name) if re.fullmatch(r"\w+", name) else "", is_whole=True)
        for name in _distinct_names(names)
    ]
    title = " ".join(query.split())
    title = title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}..."
    name = "answer" if place == 1 else f"answer_{place}"
    shown = [tuple(map(_cell, row)) for row in rows[:top]]
    return table(name, title, origin(database.capture), columns, shown, notes, "the query finds no row")


def _distinct_names(names: list[str]) -> Iterator[str]:
    """The names; each repetition of a name gets a number at its end."""
    seen: dict[str, Iterator[int]] = {}
    for name in names:
        number = next(seen.setdefault(name, count(1)))
        yield name if number == 1 else f"{name}_{number}"


def _cell(value: object) -> Cell:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _bad_query(error: duckdb.Error) -> UsageError:
    return UsageError("bad-query", f"{_error_words(error)}; --schema lists tables and columns")


def _error_words(error: duckdb.Error) -> str:
    """DuckDB's message without the lines that show the position of the error."""
    return " ".join(line for line in str(error).split("\n\nLINE ")[0].splitlines() if line.strip())
