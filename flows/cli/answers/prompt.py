"""An interactive SQL prompt with history and completion of tables, columns and named queries. Ctrl-D leaves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from warehouse import schema, views
from warehouse.query.dictionary import DICTIONARY

GREETING = (
    "Type one statement, then ; and Enter. Tab completes; 'from dictionary;' lists tables and columns. "
    "'vertical;' and 'table;' switch the row format. Ctrl-D leaves."
)
FUNCTIONS = ("count", "avg", "sum", "min", "max")
LEAVE = ("exit", "quit", ".exit", ".quit", "\\q")


def converse(answer: Callable[[str], None], history: Path) -> None:
    """Ask for statements and pass each to ``answer`` without its semicolon. ``answer`` prints, and never raises for a
    wrong one.
    """
    history.parent.mkdir(parents=True, exist_ok=True)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=WordCompleter(words(), ignore_case=True),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="   ... ",
    )
    print(GREETING)
    while True:
        try:
            text = session.prompt("userrl> ").strip().rstrip(";").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.lower() in LEAVE:
            return
        if text:
            answer(text)


def words() -> list[str]:
    """Return the words that Tab completes: tables, columns, queries with their parameters, functions and keywords."""
    tables = schema.tables()
    names = {*tables, *(column for table in tables.values() for column in table.columns), DICTIONARY}
    for query in views.queries().values():
        names |= {query.name, *(f"{parameter} :=" for parameter in query.params)}
    keywords = duckdb.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    return sorted({*names, *FUNCTIONS, *(keyword for (keyword,) in keywords)})


def _keys() -> KeyBindings:
    """Bind Enter: run the statement if it ends with a semicolon, else begin a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.endswith(";") or text.lower() in LEAVE:
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
