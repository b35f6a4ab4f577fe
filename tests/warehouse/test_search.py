from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warehouse.search.expression import weaken
from warehouse.search.index import SCHEMA, TextQuery
from warehouse.search.words import BATCH_CHARACTERS, LETTERS, bigrams, documents, words


def table(texts: list[str]) -> sqlite3.Connection:
    """One plain FTS5 row per text, positions and all: what a search must agree with."""
    con = sqlite3.connect(":memory:", isolation_level=None)
    con.execute("CREATE VIRTUAL TABLE plain USING fts5(body, tokenize='unicode61')")
    con.executemany("INSERT INTO plain(rowid, body) VALUES (?, ?)", enumerate(texts, 1))
    return con


def plainly(texts: list[str], text: str) -> list[int]:
    select = "SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY rowid DESC"
    with closing(table(texts)) as con:
        try:
            return [doc for (doc,) in con.execute(select, (text,))]
        except sqlite3.OperationalError:
            return [doc for (doc,) in con.execute(select, ('"' + text.replace('"', '""') + '"',))]


def searched(texts: list[str], text: str) -> list[int]:
    """The same through an index without positions, candidates in rounds of three."""
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as index,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as memory,
    ):
        index.executescript(SCHEMA)
        index.execute("INSERT INTO places VALUES (1, 7, 1)")
        index.executemany("INSERT INTO words(rowid, body) VALUES (?, ?)", enumerate(documents(texts), 1))
        query = TextQuery(index, memory, text)
        matches: list[int] = []
        while True:
            keys = query.candidates(3)
            assert {traj_id for traj_id, _ in keys} <= {7}
            docs = [turn for _, turn in keys]
            kept = query.matching([texts[doc - 1] for doc in docs])
            assert not query.exact or all(kept)
            matches += [doc for doc, keep in zip(docs, kept, strict=True) if keep]
            if len(keys) < 3:
                return matches


WORDS = ["a", "b", "a", "b", "c", "ab", "É", "or", "x_y"]
ODD = ["e\u0301", "-", "a.b", "\u2000\u2001", "\0", "near", "ÆØ"]
TEXTS = st.lists(
    st.lists(st.sampled_from([*WORDS, *WORDS, *ODD]), min_size=1, max_size=10).map(" ".join), min_size=3, max_size=12
)
STRINGS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(WORDS),
    st.lists(st.sampled_from([*WORDS, "-", '""', "AND"]), max_size=3).map(lambda some: '"' + " ".join(some) + '"'),
)
STARRED = st.tuples(STRINGS, st.sampled_from(["", "", "", "*", " *"])).map("".join)
PHRASES = st.one_of(STARRED, st.lists(STARRED, min_size=1, max_size=3).map(" + ".join))
NEARS = st.tuples(
    st.lists(PHRASES, min_size=1, max_size=3).map(" ".join), st.sampled_from(["", ",0", ", 1", ",3"])
).map("NEAR({0[0]}{0[1]})".format)
COLUMNS = st.sampled_from(["", "", "", "", "", "body : ", "- body:", "{body}: ", '-{"body" body} : ', "body:"])
LEAVES = st.tuples(COLUMNS, st.one_of(PHRASES, PHRASES, PHRASES.map(lambda one: f"^ {one}"), NEARS)).map("".join)
EXPRESSIONS = st.recursive(
    st.lists(LEAVES, min_size=1, max_size=2).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR ", " OR ", " NOT ", " NOT "]), inner).map("".join),
        st.tuples(COLUMNS, inner).map("{0[0]}({0[1]})".format),
    ),
    max_leaves=6,
)
SYMBOLS = st.lists(
    st.sampled_from([*WORDS, "AND", "OR", "NOT", "NEAR", "NEAR(", *'(){}:,+*^-" ', "body", "2"]), min_size=1, max_size=9
)


@settings(max_examples=500, deadline=None)
@given(TEXTS, EXPRESSIONS)
@example(["a b", "b a", "b"], 'b NOT (a NOT "a b")')
@example(["a b", "b"], 'a NOT ("" OR b)')
@example(["a", "a b", "a c"], 'a * + ""')
@example(["a b c", "a c"], "a NOT b NOT c")
def test_every_expression_finds_what_one_fts5_row_per_turn_would(texts: list[str], expression: str) -> None:
    assert searched(texts, expression) == plainly(texts, expression)


@settings(max_examples=500, deadline=None)
@given(TEXTS, st.one_of(SYMBOLS.map(" ".join), SYMBOLS.map("".join)))
@example(["a b", "b"], "a AND (b")
@example(["a", "b"], "- body : a")
@example(["a", "b"], "'; DROP TABLE words; --")
def test_what_is_no_expression_is_a_phrase(texts: list[str], text: str) -> None:
    if not text.lstrip().startswith("*"):
        assert searched(texts, text) == plainly(texts, text)


@pytest.mark.parametrize("text", ["*reads", " *id", "*a"])
def test_queries_about_the_index_itself_are_phrases(text: str) -> None:
    assert searched(["a", "reads", "b id"], text) == plainly(["a", "reads", "b id"], f'"{text}"')


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_words_are_those_of_unicode61(text: str) -> None:
    with closing(table([text])) as con:
        con.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(plain, 'instance')")
        terms = con.execute("SELECT term FROM terms ORDER BY offset").fetchall()
    assert words(text) == [term for (term,) in terms]


def test_no_word_of_any_text_looks_like_a_bigram() -> None:
    assert words("".join(LETTERS)) == []
    assert all(set(hashed) <= set(LETTERS) for hashed in bigrams(["a", "b", "c", "d"]))
    hashed = bigrams(["a", "b"]).pop()
    assert searched(["a b", "a"], hashed) == searched(["a b", "a"], f"{hashed}*") == []


def test_bigrams_do_not_depend_on_the_process() -> None:
    assert [ord(letter) for letter in bigrams(["one", "two"]).pop()] == [8233, 8217]
    assert bigrams(["one"]) == bigrams([]) == set()
    assert bigrams(["one", "two"]) != bigrams(["two", "one"])


def test_texts_make_the_same_documents_however_many_are_in_memory_at_once() -> None:
    texts = ["a b c", "", "-", "x" * BATCH_CHARACTERS, "d", "e f", "y" * BATCH_CHARACTERS, "a b c"]
    assert list(documents(texts)) == [next(documents([text])) for text in texts]
    assert list(documents([])) == []


def test_only_what_the_index_cannot_tell_is_read() -> None:
    assert weaken("a b OR (c* NOT d)").exact
    assert [weaken(text).exact for text in ('"a b"', "NEAR(a b)", "^a", "body: a", 'a NOT "b c"', "x_y")] == [False] * 6
    assert weaken('a NOT "b c" NOT d').match == '("a" NOT "d")'
    assert weaken("NEAR(a b, 2)").match == '("a" AND "b")'
    assert weaken('""').match is None


def test_very_long_phrases_and_words_are_found() -> None:
    long = " ".join(f"w{n}" for n in range(5000))
    assert searched([long, "w1"], f'"{long}"') == [1]
    assert searched([long, "w1"], long + " w") == []
    word = "x" * 40_000
    assert searched([word + " b", word[:32_768] + " b", "x b"], f'"{word} b"') == [2, 1]


@pytest.mark.parametrize(
    "text",
    [
        "a" + " NOT b" * 150,
        "a" + " AND a" * 2000,
        "a" + " OR b" * 2000,
        "(" * 60 + "a" + ")" * 60,
        "a OR (" * 20 + "a" + ")" * 20,
    ],
)
def test_long_and_deep_expressions_are_answered(text: str) -> None:
    texts = ["a", "b", "a b", "c"]
    assert searched(texts, text) == plainly(texts, text)
