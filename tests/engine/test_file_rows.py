"""The rows of text files: CSV as RFC 4180 says, JSON lines, types that hold every value, one rule for bad lines."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import AnabranchError, SourceError
from anabranch.sources.inference import wider
from anabranch.sources.quotes import Dialect, has_long_number, layout_of
from anabranch.testing import Harness

QUOTED = 'id,text\n1,"say ""hi"", twice"\n2,"two\nlines"\n3,5" disk\n4,"a,b"\n'
ROWS = [(1, 'say "hi", twice'), (2, "two\nlines"), (3, '5" disk'), (4, "a,b")]


def layout(path: Path, text: str, **options: Any) -> tuple[bool, list[int]]:
    """Whether records go over lines, and the numbers of lines with an open quote."""
    path.write_text(text)
    found = layout_of(str(path), 0, len(text.encode()), Dialect.of("csv", options))
    return found.multiline, [line.number for line in found.unclosed]


def test_where_quotes_open_and_close(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    assert layout(path, "a,b\n1,2\n") == (False, [])
    assert layout(path, 'a,b\n1,"2 ""x"" 3"\n') == (False, [])
    assert layout(path, QUOTED) == (True, [])
    assert layout(path, 'a,b\n1,"open\n2,x\n3,"y"\n') == (False, [2])
    assert layout(path, 'a,b\n1,"open\n2,x\n3,y') == (False, [2])
    assert layout(path, 'a,b\n1,"open\n"2\n3",x\n') == (True, [2])
    assert layout(path, "a,b\n1,'2\n3'\n", quote="'") == (True, [])
    assert layout(path, 'a,b\n1,"2 \\" 3"\n', escape="\\") == (False, [])
    assert layout(path, 'a,b\n1,"2\n', quote="") == (False, [])


def test_long_numbers_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for before in (0, 1, (1 << 20) - 8, 1 << 20):
        path.write_bytes(b"x" * before + b"1234567890123456,")
        assert has_long_number(str(path), 16)
        assert not has_long_number(str(path), 17)


def test_the_type_for_values_of_two_types() -> None:
    for one, other, both in [
        ("int", "void", "int"),
        ("decimal(30,0)", "bigint", "decimal(30,0)"),
        ("decimal(38,0)", "decimal(10,2)", "string"),
        ("decimal(30,0)", "double", "string"),
        ("date", "timestamp", "timestamp"),
        ("boolean", "int", "string"),
    ]:
        assert wider(one, other) == wider(other, one) == both


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def types(home: Harness, relation: str) -> list[tuple[str, str]]:
    result = home.session.sql(f"SELECT * FROM {relation} LIMIT 0")
    return list(zip(result.columns, result.types, strict=True))


@pytest.mark.spark
def test_csv_is_that_of_rfc_4180_everywhere(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text(QUOTED)
    with gzip.open(folder / "y.csv.gz", "wt") as file:
        file.write(QUOTED)
    for name in ("x.csv", "y.csv.gz"):
        path = folder / name
        assert types(home, f"'{path}'") == [("id", "int"), ("text", "string")]
        assert sorted(home.query(f"SELECT id, text FROM '{path}'")) == ROWS
        assert home.query(f"SELECT max(id) FROM '{path}'") == [(4,)]
    home.sql(f"CREATE STREAM s (id INT, text STRING) FROM files('{folder}/*.csv'); CREATE VIEW v AS SELECT * FROM s")
    home.sql(f"CREATE TABLE t FROM '{folder}/x.csv'; CREATE STREAM c (id INT, text STRING); COPY c FROM '{path}'")
    home.sql(f"CREATE TABLE u (id INT, text STRING); COPY u FROM '{path}'")
    for name in ("s", "v", "t", "c", "u"):
        assert sorted(home.query(f"SELECT id, text FROM {name}")) == ROWS, name
    with (folder / "x.csv").open("a") as file:
        file.write('5,"three\nmore\nlines"\n')
    assert sorted(home.table("v")) == [*ROWS, (5, "three\nmore\nlines")]


@pytest.mark.spark
def test_a_bad_line_stops_a_query_and_is_named(home: Harness, folder: Path) -> None:
    path = folder / "x.csv"
    for ending, text, told in [
        ("csv", "a,b\n1,2\n3,4,5\n", "line 3: 3 fields where 2 are expected"),
        ("csv", "a,b\n1,2\n\n3\n", "line 4: 1 field where 2 are expected"),
        ("csv", 'a,b\n1,"x\n2,y\n', "line 2: a quote is opened and never closed"),
        ("json", '{"a": 1}\nnothing\n{"a": 2}\n', "line 2: it is not JSON"),
        ("json", '{"a": 1}\n[2]\n', "line 2: it is not a JSON object"),
    ]:
        path = folder / f"x.{ending}"
        path.write_text(text)
        for statement in (f"SELECT count(*) FROM '{path}'", f"CREATE TABLE t FROM '{path}'"):
            with pytest.raises(AnabranchError) as caught:
                home.query(statement)
            assert f"{path}, {told}" in str(caught.value) and "bad_rows => 'skip'" in str(caught.value)


@pytest.mark.spark
def test_bad_lines_can_be_skipped_and_are_counted(home: Harness, folder: Path) -> None:
    told: list[str] = []
    home.session.on_warning(told.append)
    (folder / "x.csv").write_text('a,b\n1,2\n3,4,5\n6,"x\n8\n9,10\n')
    assert sorted(home.query(f"SELECT a, b FROM csv('{folder}/x.csv', bad_rows => 'skip')")) == [(1, 2), (9, 10)]
    assert told == [f"bad rows are skipped, the first of 3: {folder}/x.csv, line 4: a quote is opened and never closed"]
    home.sql(f"CREATE TABLE t (a INT, b INT) FROM csv('{folder}/x.csv', header => true, bad_rows => 'skip')")
    assert sorted(home.table("t")) == [(1, 2), (9, 10)]
    with pytest.raises(AnabranchError, match="bad_rows cannot be"):
        home.query(f"SELECT * FROM csv('{folder}/x.csv', bad_rows => 'hide')")


@pytest.mark.spark
def test_a_stream_sets_bad_lines_aside_and_says_why(home: Harness, folder: Path) -> None:
    home.sql(f"CREATE STREAM s (n INT, d DATE, t STRING) FROM files('{folder}/*.csv', header => true)")
    home.sql("CREATE VIEW v AS SELECT count(*) AS c FROM s")
    (folder / "x.csv").write_text(
        'n,d,t\n1,2026-01-01,a\n2,noon,b\nmany,2026-01-01,c\n3,4\n5,"open,d\n6,2026-01-01,e\n'
    )
    assert home.table("v") == [(2,)]
    assert sorted(home.query("SELECT offset, reason, `column` FROM sys.bad_rows")) == [
        (3, "d is no DATE: 'noon'", "d"),
        (4, "n is no INT: 'many'", "n"),
        (5, "2 fields where 3 are expected", None),
        (6, "a quote is opened and never closed", None),
    ]
    assert home.runs("s")[0]["bad_rows"] == 4
    assert home.query("SELECT count(*) FROM s") == [(2,)]
    home.sql(f"CREATE STREAM c (n INT, d DATE, t STRING); COPY c FROM '{folder}/x.csv'")
    assert len(home.table("c")) == 2
    assert home.query("SELECT count(`offset`) FROM sys.bad_rows WHERE stream = 'c'") == [(4,)]


@pytest.mark.spark
def test_files_with_other_headers_have_columns_of_their_own_names(home: Harness, folder: Path) -> None:
    (folder / "a.csv").write_text("id,price\n1,1.5\n")
    (folder / "b.csv").write_text("price,id\n2,2\n")
    (folder / "c.csv").write_text('id,price,"a\nnote"\n30000000000,4,x\n')
    (folder / "d.csv").write_text("")
    assert types(home, f"'{folder}/*.csv'") == [("id", "bigint"), ("price", "double"), ("a\nnote", "string")]
    assert sorted(home.query(f"SELECT id, price FROM '{folder}/*.csv'")) == [(1, 1.5), (2, 2.0), (30000000000, 4.0)]
    (folder / "e.csv").write_text("id,ID,,id\n1,2,3,4\n")
    assert types(home, f"'{folder}/e.csv'") == [("id0", "int"), ("ID1", "int"), ("_c2", "int"), ("id3", "int")]


@pytest.mark.spark
def test_numbers_are_exact_or_texts(home: Harness, folder: Path) -> None:
    a, b = "1" * 30, "2" * 44
    (folder / "x.csv").write_text(f"both,one,mixed,plain\n{a},{a},{a},1.5\n{b},3,0.25,2\n")
    (folder / "x.json").write_text(f'{{"both": {a}, "plain": 1.5}}\n{{"both": {b}, "plain": 2}}\n')
    assert [type for _, type in types(home, f"'{folder}/x.csv'")] == [
        "string",
        "decimal(30,0)",
        "decimal(32,2)",
        "double",
    ]
    assert sorted(home.query(f"SELECT both, one FROM '{folder}/x.csv'")) == [(a, Decimal(a)), (b, Decimal(3))]
    assert types(home, f"'{folder}/x.json'") == [("both", "string"), ("plain", "double")]
    assert sorted(home.query(f"SELECT both FROM '{folder}/x.json'")) == [(a,), (b,)]


@pytest.mark.spark
def test_a_stream_has_no_option_for_bad_rows(home: Harness, folder: Path) -> None:
    with pytest.raises((AnabranchError, SourceError), match="ON ERROR"):
        home.sql(f"CREATE STREAM s (k STRING) FROM csv('{folder}/*.csv', bad_rows => 'skip')")


def piped(text: str) -> int:
    """The number of the end of a pipe that gives a text."""
    ours, theirs = os.pipe()
    os.write(theirs, text.encode())
    os.close(theirs)
    return ours


@contextlib.contextmanager
def as_stdin(text: str) -> Iterator[None]:
    before, pipe = os.dup(0), piped(text)
    os.dup2(pipe, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(pipe)


@pytest.mark.spark
def test_what_comes_through_a_pipe_is_read(home: Harness, tmp_path: Path) -> None:
    with as_stdin(QUOTED):
        assert home.query("SELECT count(*), max(c.id) FROM stdin.csv c") == [(4, 4)]
        assert home.query("SELECT count(*) FROM csv('/dev/stdin')") == [(4,)]  # it is there for every statement
        assert home.query("DESCRIBE stdin.csv") == [("id", "int", ""), ("text", "string", "")]
    spools = list(home.path.rglob("pipe-*"))
    assert len(spools) == 1
    home.reopen()
    assert not spools[0].exists()
    with as_stdin('{"a": 1}\n{"a": 2}\nx\n'), pytest.raises(AnabranchError, match="/dev/stdin, line 3: it is not JSON"):
        home.query("SELECT * FROM stdin.json")
    pipe = piped("a\tb\n1\t2\n")
    assert home.query(f"SELECT b FROM files('/dev/fd/{pipe}', format => 'tsv')") == [(2,)]
    os.close(pipe)
    with as_stdin(""), pytest.raises(AnabranchError, match=r"(?s)nothing came through /dev/stdin.*cat x\.csv"):
        home.query("SELECT * FROM stdin.csv")
    pipe = piped("7,x\n")
    home.sql(f"CREATE STREAM s (id INT, text STRING); COPY s FROM '/dev/fd/{pipe}' (format => 'csv')")
    assert home.table("s") == [(7, "x")]
    for statement, told in [
        ("SELECT * FROM '/dev/stdin'", "the format of /dev/stdin cannot be inferred from its name"),
        ("SELECT * FROM stdin.yaml", "there is no stream, view or table stdin.yaml"),
        ("CREATE STREAM t (a INT) FROM csv('/dev/stdin')", "a pipe can be read once"),
    ]:
        with pytest.raises(AnabranchError, match=told):
            home.query(statement)
    os.close(pipe)


@pytest.mark.spark
def test_the_columns_of_a_file_are_described(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text("id;at\n1;2026-01-01\n")
    shown = [("id", "int", ""), ("at", "date", "")]
    assert home.query(f"DESCRIBE csv('{folder}/x.csv', sep => ';')") == shown
    assert home.query(f"DESCRIBE '{folder}/x.csv'") == [("id;at", "string", "")]


@pytest.mark.parametrize("name", ["cats.csv", "data/cats.csv", "./2026-*.json.gz", "/in/a-b.parquet"])
def test_the_name_of_a_file_without_quotes_gets_a_hint(name: str) -> None:
    from anabranch.plan.bind import Binder
    from anabranch.plan.catalog import Catalog
    from anabranch.sql.parser import parse

    text = f"SELECT count(*) FROM {name} WHERE x > 1"
    with pytest.raises(AnabranchError) as caught:
        Binder(text, Catalog({}), parse(text)[0].query).bind()  # type: ignore[attr-defined]
    assert f"'{name}'" in str(caught.value)
