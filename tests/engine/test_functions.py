"""Python functions of a home: kept by name, imported where they are called, and missed only there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

import anabranch
from anabranch.errors import AnabranchError, SqlError
from anabranch.sql.functions import builtin, counts_of
from anabranch.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MODULE = """
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

def twice(n: int) -> int | None:
    return None if n is None else n * 2

def words(text: str) -> list[str]:
    return text.split()

def loud(text):
    return text.upper()

made = udf(lambda n: n + 100, LongType())
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module on the Python path of this process alone."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "rules_of_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "python")
    monkeypatch.delitem(sys.modules, "rules_of_test", raising=False)
    return "rules_of_test"


def test_a_function_belongs_to_the_home(home: Harness, module: str, spark: SparkSession) -> None:
    for name, more in (("twice", ""), ("words", ""), ("loud", " RETURNS STRING"), ("made", "")):
        home.sql(f"CREATE FUNCTION {name} AS '{module}.{name}'{more}")
    home.sql("CREATE STREAM s (k STRING, n INT); CREATE VIEW v AS SELECT k, sum(twice(n)) AS n FROM s GROUP BY k")
    home.sql("CREATE VIEW top AS SELECT k, twice(count(*)) AS n FROM s GROUP BY k; CREATE VIEW w AS SELECT k FROM s")
    home.insert("s", [("a", 1), ("a", 2)])
    assert home.query("SELECT k, TWICE(n), loud(k), words('b c'), made(1L) FROM v") == [("a", 12, "A", ["b", "c"], 101)]
    shown = home.query("SHOW FUNCTIONS")
    assert [row[:2] for row in shown[:2]] == [("loud", f"{module}.loud"), ("made", f"{module}.made")]
    assert [row[0] for row in home.query("SHOW FUNCTIONS LIKE 'tw*|date_ad%'")] == ["twice", "date_add"]
    # Another process: it imports nothing until a function is called.
    home.reopen()
    del sys.modules[module]
    home.query("SELECT * FROM w")
    home.query("SELECT 'twice(1)' AS twice")
    home.query("SHOW VIEWS")
    assert module not in sys.modules
    home.insert("s", [("b", 5)])  # v needs it
    assert module in sys.modules
    assert sorted(home.query("SELECT * FROM v")) == [("a", 6), ("b", 10)]
    with anabranch.connect(home.path, spark, read_only=True) as reader:
        assert sorted(reader.sql("SELECT n FROM top").toArrow().column("n").to_pylist()) == [2, 4]
    for text in ("DROP FUNCTION twice", f"CREATE OR REPLACE FUNCTION twice AS '{module}.made'"):
        with pytest.raises(SqlError, match="twice is called by v, top"):
            home.sql(text)
    home.sql("DROP VIEW v; DROP VIEW top; DROP FUNCTION twice; DROP FUNCTION IF EXISTS twice")
    with pytest.raises(SqlError, match="there is no function twice"):
        home.query("SELECT twice(1)")


def test_who_lacks_a_function_misses_what_calls_it_and_nothing_else(
    home: Harness, module: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT); CREATE STREAM other (n INT)")
    home.sql(f"CREATE FUNCTION twice AS '{module}.twice'; CREATE VIEW w AS SELECT count(*) AS c FROM s")
    home.session.spark.udf.register("own", lambda n: n + 1, "int")
    home.sql("CREATE VIEW v AS SELECT twice(count(*)) AS n FROM s; CREATE VIEW mine AS SELECT own(n) AS n FROM other")
    home.insert("s", [("a", 1)])
    home.insert("other", [(1,)])
    home.reopen()
    monkeypatch.undo()  # no longer on the path
    del sys.modules[module]
    with pytest.raises(AnabranchError, match=r"the function twice .* rules_of_test cannot be imported"):
        home.query("SELECT * FROM v")
    assert home.query("SELECT * FROM w") == [(1,)]
    with pytest.raises(AnabranchError, match=r"mine calls the function own.*\n.*udf\.register\('own'"):
        home.insert("other", [(2,)])
    home.sql("CREATE VIEW more AS SELECT sum(n) AS n FROM other")
    assert home.query("SELECT * FROM more") == [(1,)]
    home.session.spark.udf.register("own", lambda n: n + 1, "int")
    home.insert("other", [(2,)])
    assert home.table("mine") == [(2,), (3,)]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE FUNCTION f AS 'nowhere_at_all.f'", "nowhere_at_all cannot be imported"),
        ("CREATE FUNCTION f AS 'rules_of_test.nope'", "has no nope"),
        ("CREATE FUNCTION f AS 'rules_of_test.number'", "is not a function"),
        ("CREATE FUNCTION f AS 'rules_of_test.loud'", "RETURNS"),
        ("CREATE FUNCTION f AS '__import__(\"os\").system'", "does not name a Python function"),
        ("CREATE FUNCTION sum AS 'rules_of_test.twice'", "a built-in function of Spark"),
        ("CREATE FUNCTION a.b AS 'rules_of_test.twice'", "cannot be the name"),
        ("DROP FUNCTION f", "there is no function f"),
    ],
)
def test_what_cannot_be_a_function(home: Harness, module: str, statement: str, words: str) -> None:
    with pytest.raises(SqlError) as caught:
        home.sql(statement)
    assert words in str(caught.value) and "^" in str(caught.value)
    assert home.session.version == 0


def test_a_script_makes_its_functions_once(home: Harness, module: str) -> None:
    script = f"CREATE FUNCTION twice AS '{module}.twice'; CREATE FUNCTION IF NOT EXISTS twice AS 'x.y'"
    for _ in range(2):
        home.session.run(script, until_idle=True)
    with pytest.raises(SqlError, match="function twice already exists"):
        home.sql(f"CREATE FUNCTION twice AS '{module}.words'")
    home.sql(f"CREATE OR REPLACE FUNCTION twice AS '{module}.loud' RETURNS STRING")
    assert home.query("SELECT twice('a')") == [("A",)]


def test_the_list_of_sparks_functions_is_sparks(spark: SparkSession) -> None:
    """Their names, and of some how many arguments they take."""
    assert set(builtin()) == {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    known = {name: counts for name in builtin() if name.isidentifier() and (counts := counts_of(name))}
    for name in sorted(known)[::25]:
        least, most = known[name].least, known[name].most
        for given in {max(least - 1, 0), least, least if most is None else most, 9 if most is None else most + 1}:
            try:
                spark.sql(f"SELECT `{name}`({', '.join(['NULL'] * given)})")
                refused = False
            except AnalysisException as error:
                refused = (error.getCondition() or "").startswith("WRONG_NUM_ARGS")
            assert refused is not known[name].holds(given), (name, given)
