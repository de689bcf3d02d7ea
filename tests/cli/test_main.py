"""Words, options, exit codes, and what goes to which stream; the engine is a fake."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch
from anabranch.cli.console import describe
from anabranch.cli.main import cli
from anabranch.errors import QueryFailed, UnknownName

HEAVY = ("pyspark", "pyarrow", "deltalake", "duckdb", "rich", "pandas", "numpy", "prompt_toolkit", "pygments")


def python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    source = str(Path(anabranch.__file__).parents[1])
    environ = {**os.environ, "PYTHONPATH": source}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        check=False,
        **options,
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        ([], 0),
        (["run", "--help"], 0),
        (["SELEC 1"], 1),
        (["--nonsense"], 2),
    ],
)
def test_help_version_and_mistakes_import_nothing_heavy(arguments: list[str], code: int) -> None:
    done = python(
        f"import sys; from anabranch.cli.main import main; code = main({arguments!r});"
        f"print('HEAVY', sorted(set(sys.modules) & set({HEAVY!r})), code)"
    )
    assert done.stdout.splitlines()[-1] == f"HEAVY [] {code}", done.stderr


def test_what_is_no_dependency_is_not_needed(tmp_path: Path) -> None:
    """numpy and pandas come with extras."""
    (tmp_path / "bids.csv").write_text("auction,price\n1,10\n2,20\n1,30\n")
    done = python(
        "import sys; sys.modules.update(numpy=None, pandas=None); from anabranch.cli.main import main;"
        "code = main(['-o', 'batch-csv', \"SELECT auction, max(price) AS best FROM 'bids.csv' GROUP BY auction"
        ' ORDER BY auction"]); from anabranch.render.duckdb_functions import _BY_NAME as known;'
        "print(code, 'pyspark' in sys.modules, 'abs' in known, 'xxhash64' in known)",
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == ["auction,best", "1,30", "2,20", "0 False True False"], done.stderr


def test_importing_the_package_costs_nothing() -> None:
    done = python(
        "import anabranch, sys; print(anabranch.__version__, sorted(set(sys.modules) & {'click', 'pyspark'}))"
    )
    assert done.stdout == f"{anabranch.__version__} []\n"


def test_a_session_is_the_first_thing_that_is_imported() -> None:
    """Modules that need each other hide it as long as another one is imported before them, as in all other tests."""
    done = python("import anabranch; print(anabranch.connect.__name__)")
    assert done.stdout == "connect\n", done.stderr


def test_errors_can_be_had_from_the_package() -> None:
    assert anabranch.SqlError.__mro__[1] is anabranch.AnabranchError
    assert "connect" in dir(anabranch)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = anabranch.nothing  # type: ignore[attr-defined]


def test_version_and_help(run_cli: Any) -> None:
    assert run_cli("--version").out == f"anabranch {anabranch.__version__}\n"
    for arguments in ([], ["--help"], ["--home", "x", "--help"]):
        ended = run_cli(*arguments)
        assert ended.code == 0
        for word in ("--output", "--run-rows", "doctor", "compact", "SQL; SQL"):
            assert word in ended.out


def test_sql_is_run_and_printed(run_cli: Any, session: Any, make: Any) -> None:
    session.results = [make.result("done", "stream bids created"), make.rows(a=[1])]
    ended = run_cli("SELECT 1; SELECT 2", "-o", "batch-csv")
    assert (ended.code, ended.out, ended.err) == (0, "a\n1\n", "stream bids created\n")
    assert session.text == "SELECT 1; SELECT 2"
    assert session.live is False
    assert session.closed


def test_quiet_prints_results_only(run_cli: Any, session: Any, make: Any) -> None:
    session.results = [make.result("done", "stream bids created"), make.rows(a=[1])]
    ended = run_cli("--quiet", "SELECT 1")
    assert (ended.out, ended.err) == ("a\n-\n1\n(1 row)\n", "")


def test_options_reach_the_engine(run_cli: Any, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--master", "local[2]", "--conf", "a.b=c=d", "SELECT 1", "--conf", "e=", "--run-rows", "5"]
    arguments += ["--backend", "spark"]
    assert run_cli(*arguments, "--home", "ledger").code == 0
    assert session.opened_with == (
        "ledger",
        {"master": "local[2]", "conf": {"a.b": "c=d", "e": ""}, "run_rows": 5, "read_only": False, "backend": "spark"},
    )
    run_cli("SELECT 1", "--home", "ledger", "--read-only")
    assert session.opened_with[1]["read_only"] is True
    monkeypatch.setenv("ANABRANCH_HOME", "from-environment")
    run_cli("SELECT 1")
    assert session.opened_with[0] == "from-environment"
    monkeypatch.delenv("ANABRANCH_HOME")
    run_cli("SELECT 1")
    assert session.opened_with[0] is None


def test_a_dry_run_is_asked_for(run_cli: Any, session: Any) -> None:
    assert run_cli("ALTER VIEW v AS SELECT 1").code == 0
    assert session.dry_run is False
    assert run_cli("--dry-run", "ALTER VIEW v AS SELECT 1").code == 0
    assert session.dry_run is True


@pytest.mark.parametrize("output", ["stream-json", "live-csv", "live-table"])
def test_live_outputs_ask_for_changes(run_cli: Any, session: Any, make: Any, output: str) -> None:
    session.results = [make.changes({"a": [1], "_diff": [1]})]
    assert run_cli("-o", output, "SELECT 1").code == 0
    assert session.live is True


def test_an_endless_result_is_a_table_where_there_is_no_terminal(run_cli: Any, session: Any, make: Any) -> None:
    session.results = [make.result("rows", table=pa.table({"a": [1]}), endless=True)]
    assert run_cli("SELECT 1").out == "a\n-\n1\n(1 row)\n"
    assert session.live is False


def test_scripts_from_files_and_stdin(
    run_cli: Any, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "s.sql"
    script.write_text("\ufeffSELECT 'é'", encoding="utf-8")
    assert run_cli("-f", str(script)).code == 0
    assert session.text == "SELECT 'é'"
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 3"))
    assert run_cli("-f", "-").code == 0
    assert session.text == "SELECT 3"


def test_sql_may_start_with_a_comment(run_cli: Any, session: Any) -> None:
    assert run_cli("-- why\nSELECT 1", "--run-rows", "3").code == 0
    assert session.text == "-- why\nSELECT 1"
    assert session.opened_with[1]["run_rows"] == 3
    assert run_cli("--", "SELECT 2").code == 0
    assert session.text == "SELECT 2"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["SELECT", "1"], "put it in quotes"),
        (["doctr"], "did you mean doctor?"),
        (["chekc", "app.sql"], "did you mean check?"),
        (["-o", "xml", "SELECT 1"], "live-csv"),
        (["--conf", "novalue", "SELECT 1"], "key=value"),
        (["--run-rows", "0", "SELECT 1"], "--run-rows"),
        (["--run-rows", "many", "SELECT 1"], "--run-rows"),
        (["-f", "/no/such/file.sql"], "cannot be read"),
        (["-f", "x.sql", "SELECT 1"], "not both"),
        (["--home", "x"], "nothing to do"),
        (["--nonsense", "SELECT 1"], "--nonsense"),
        (["run"], "APP.SQL"),
        (["run", "/no/such/app.sql"], "cannot be read"),
        (["run", "-o", "batch-csv", "app.sql"], "-o"),
        (["compact", "--home", "/no/such/home"], "there is no home"),
        ([""], "no statement"),
    ],
)
def test_wrong_usage_is_2(run_cli: Any, session: Any, arguments: list[str], says: str) -> None:
    ended = run_cli(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert says in ended.err
    assert "query" not in ended.err
    assert session.opened_with is None


def test_a_syntax_error_anywhere_starts_nothing(run_cli: Any, session: Any) -> None:
    ended = run_cli("SELECT 1; SELEC 2")
    assert ended.code == 1
    assert "SELEC 2" in ended.err
    assert "^^^^^" in ended.err
    assert session.opened_with is None


def test_a_failing_query_is_1_and_shows_no_stack_trace(run_cli: Any, session: Any, make: Any) -> None:
    session.results = [make.rows(a=[1]), QueryFailed("division by zero", hint="use try_divide")]
    ended = run_cli("SELECT 1", "-o", "batch-csv")
    assert (ended.code, ended.out) == (1, "a\n1\n")
    assert ended.err == "error: division by zero\n  use try_divide\n"
    assert session.closed


def test_the_place_in_the_text_is_underlined(run_cli: Any, session: Any) -> None:
    session.results = [UnknownName("unknown name bidz", text="SELECT 1 FROM bidz", start=14, end=18)]
    assert run_cli("SELECT 1 FROM bidz").err.splitlines()[1:] == [
        "  line 1: SELECT 1 FROM bidz",
        " " * 24 + "^^^^",
    ]


def test_debug_shows_the_stack_trace(run_cli: Any, session: Any) -> None:
    session.results = [ValueError("something odd\n\tat org.apache.Spark(x.scala)\nCaused by: y")]
    plain = run_cli("SELECT 1")
    assert plain.code == 1
    assert plain.err == "error: ValueError: something odd\n  --debug shows where it happened\n"
    assert "Traceback" in run_cli("SELECT 1", "--debug").err


def test_java_traces_are_cut_off() -> None:
    error = RuntimeError("An error occurred while calling o1.load.\n: java.lang.X: no\n\tat a.b(c)\n\tat d\n")
    assert describe(error) == "RuntimeError: An error occurred while calling o1.load.\n: java.lang.X: no"
    assert describe(RuntimeError()) == "RuntimeError"


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_stops_run_between_runs_with_0(run_cli: Any, session: Any, make: Any, tmp_path: Path) -> None:
    app = tmp_path / "app.sql"
    app.write_text("SELECT 1")
    session.reports = [make.report(run=n) for n in range(5)]
    session.during_run = lambda number: interrupt() if number == 1 else None
    before = signal.getsignal(signal.SIGINT)
    ended = run_cli("run", str(app), "--home", "h")
    assert ended.code == 0
    assert "stopping after this run" in ended.err
    assert "2 runs, 4,000 rows, 24 late" in ended.err
    assert ended.out == ""
    assert signal.getsignal(signal.SIGINT) is before
    assert session.closed


def test_a_second_ctrl_c_aborts(run_cli: Any, session: Any, make: Any, tmp_path: Path) -> None:
    app = tmp_path / "app.sql"
    app.write_text("SELECT 1")
    session.reports = [make.report()] * 2

    def twice(_: int) -> None:
        interrupt()
        interrupt()

    session.during_run = twice
    assert run_cli("run", str(app)).code == 130
    assert session.closed


def test_ctrl_c_ends_a_query_with_130(run_cli: Any, session: Any, make: Any) -> None:
    result = make.changes(*[{"a": [n], "_diff": [1]} for n in range(3)])
    result.before_batch = lambda number: interrupt() if number == 2 else None
    session.results = [result, make.rows(b=[1])]
    ended = run_cli("SELECT 1", "-o", "live-csv")
    assert (ended.code, ended.out) == (130, "a,_diff\n0,1\n1,1\n2,1\n")
    assert session.stop.is_set()

    class Slow:
        kind, message, endless, columns = "rows", None, False, ["a"]

        def toArrow(self) -> Any:
            interrupt()

    session.results = [Slow()]
    assert run_cli("SELECT 1").code == 130


def test_run_reports_on_stderr(run_cli: Any, session: Any, make: Any, tmp_path: Path) -> None:
    app = tmp_path / "app.sql"
    app.write_text("SELECT 1")
    session.reports = [make.report(bad=3)]
    ended = run_cli("--home", "h", "run", str(app), "--until-idle", "--run-rows", "7")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == [
        "bids: run 0, version 1, 2,000 rows, 12 late, 3 bad, 180 ms, 2,000 rows in all, 11,000 rows/s, "
        "progress 2026-01-01 00:00:00",
        "1 run, 2,000 rows, 12 late, 3 bad (see sys.bad_rows)",
    ]
    assert session.until_idle is True
    assert session.opened_with[0] == "h"
    run_cli("run", str(app))
    assert session.opened_with[0] == ".anabranch"


def test_compact(run_cli: Any, session: Any, tmp_path: Path) -> None:
    ended = run_cli("compact", "--home", str(tmp_path))
    assert (ended.code, ended.out, ended.err) == (0, "", "3 tables reduced\n")


def test_check(run_cli: Any, tmp_path: Path) -> None:
    app = tmp_path / "app.sql"
    app.write_text("CREATE STREAM s (a INT); SELECT 2;")
    ended = run_cli("check", str(app))
    assert (ended.code, ended.out, ended.err) == (0, "ok: 2 statements\n", "warning: nothing reads stream s\n")
    app.write_text("CREATE STREAM s (a INT);\nSELECT abss(a) FROM s;\nSELEC 2;\nSELECT b, sum(a) FROM s;")
    ended = run_cli("check", str(app))
    assert (ended.code, ended.out) == (1, "")
    assert [line for line in ended.err.splitlines() if line.startswith(("error", "  line"))] == [
        "error: there is no function abss",
        "  line 2: SELECT abss(a) FROM s;",
        "error: expected a statement, found SELEC",
        "  line 3: SELEC 2;",
        "error: there is no column b",
        "  line 4: SELECT b, sum(a) FROM s;",
    ]
    assert ended.err.endswith("3 errors\n")


def test_a_line_says_what_is_waited_for_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown where standard error was, also while others have turned it elsewhere, and erased."""
    from anabranch.cli import console as consoles

    monkeypatch.setattr(consoles, "SECONDS_UNNOTICED", 0.0)
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        console = consoles.Console(err=terminal)
        for status in ("", "a status that is longer"):  # which it stands in place of
            if status:
                console.status(status)
                assert os.read(ours, 100).decode() == f"\r{status}"
            with console.waiting("starting ..."):
                shown = os.read(ours, 100).decode()
            wide = max(len(status), len("starting ..."))
            assert shown == "\r" + "starting ...".ljust(wide)
            assert os.read(ours, 100).decode() == f"\r{' ' * wide}\r"
    os.close(ours)
    elsewhere = io.StringIO()
    with consoles.Console(err=elsewhere).waiting("starting ..."):
        pass
    assert elsewhere.getvalue() == ""


@pytest.mark.parametrize("name", ["demo", "bench"])
def test_demo_and_bench_get_their_arguments(run_cli: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    seen: list[list[str]] = []
    module = types.ModuleType(f"anabranch.{name}")
    module.main = lambda arguments: seen.append(arguments) or 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, f"anabranch.{name}", module)
    assert run_cli(name, "--rows", "10", "-x", "--help").code == 3
    assert seen == [["--rows", "10", "-x", "--help"]]


def test_a_closed_pipe_ends_quietly() -> None:
    code = """
import sys, types, threading
import pyarrow as pa
import anabranch
from anabranch.cli.main import main
class Result:
    kind, message, endless, times = "rows", None, False, {}
    def toArrow(self): return pa.table({"a": list(range(200000))})
class Session:
    stop = threading.Event()
    def execute(self, text, live, dry_run, script): yield Result()
    def cancel(self): pass
    def on_warning(self, tell): pass
    def on_notice(self, tell): pass
    def on_start(self, around): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
anabranch.connect = lambda *a, **k: Session()
sys.exit(main(["SELECT 1", "-o", "batch-csv"]))
"""
    source = str(Path(anabranch.__file__).parents[1])
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | head -2; echo ${PIPESTATUS[0]}', sys.executable, code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": source},
        check=False,
    )
    assert (done.stdout, done.stderr) == ("a\n0\n0\n", "")


def test_a_home_that_is_being_written_is_opened_for_reading(run_cli: Any, session: Any, make: Any) -> None:
    """Only if nothing in the text changes it; then nothing at all is done."""
    session.in_use, session.results = True, [make.rows(a=[1])]
    for words in (["SELECT 1", "-o", "batch-csv"], ["-o", "batch-csv", "SHOW VIEWS; EXPLAIN SELECT 1"]):
        ended = run_cli(*words, "--home", "ledger")
        assert (ended.code, ended.out) == (0, "a\n1\n")
        assert ended.err == "The home is open for writing by process 7. Answers are read at its newest version.\n"
        assert session.opened_with[1]["read_only"] is True
    session.text = None
    for text in ("INSERT INTO s VALUES (1)", "SELECT 1; DROP VIEW v", "SELECT * FROM s EMIT CHANGES"):
        ended = run_cli(text, "--home", "ledger")
        assert (ended.code, session.text) == (1, None)
        assert "open for writing by process 7" in ended.err


def test_statements_of_a_file_are_a_script(run_cli: Any, session: Any, tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text("SELECT 1")
    run_cli("-f", str(tmp_path / "app.sql"))
    assert session.script is True
    run_cli("SELECT 1")
    assert session.script is False


def test_every_command_is_in_the_help_and_has_a_sentence() -> None:
    for name, command in cli.commands.items():
        assert command.help, name


def test_describe_asks_about_the_last_statement(run_cli: Any, session: Any, make: Any, tmp_path: Path) -> None:
    """What stands before it is carried out; the answer is printed as it is, or written."""
    plan = make.rows(plan=["stream s", "  state: none"])
    session.results = [make.result(message="made"), plan]
    ended = run_cli("describe", "CREATE STREAM s (a INT); SELECT a FROM s")
    assert (ended.code, ended.out, ended.err) == (0, "stream s\n  state: none\n", "made\n")
    assert session.text == "CREATE STREAM s (a INT); EXPLAIN (FORMAT TEXT) SELECT a FROM s"
    session.results = [plan]
    to = tmp_path / "plan.dot"
    assert run_cli("describe", "v", "--format", "dot", "--to", str(to)).code == 0
    assert session.text == "EXPLAIN (GRAPH dot) v"
    assert to.read_text() == "stream s\n  state: none\n"
    assert run_cli("describe", "v", "--to", str(to)).code == 2
    assert run_cli("describe", "v", "--to", str(to), "--overwrite").code == 0


def test_describe_of_nothing_or_of_no_query(run_cli: Any, session: Any) -> None:
    assert run_cli("describe", " ").code == 2
    assert run_cli("describe", "DROP VIEW v").code == 1
    assert session.opened_with is None


def test_describe_prints_json_over_lines(run_cli: Any, session: Any, make: Any) -> None:
    session.results = [make.rows(plan=['{"nodes": []}'])]
    assert run_cli("describe", "v", "--format", "json").out == '{\n  "nodes": []\n}\n'


def test_parameters_of_the_command_line_have_types(run_cli: Any, session: Any) -> None:
    values = ["k=it's", "n=-5", "d=1.50", "e=1e3", "z=NULL", "t=true", "q='7'", "eq=a=b", "long=" + "9" * 5000]
    options = [word for value in values for word in ("-p", value)]
    assert run_cli(*options, "SELECT :k, :n, :d, :e, :z, :t, :q, :eq, :long").code == 0
    assert session.text == (f"SELECT 'it\\'s', (-5), 1.50BD, 1000.0D, NULL, true, '7', 'a=b', '{'9' * 5000}'")
    ended = run_cli("-p", "k=1", "SELECT :kk")
    assert (ended.code, "parameter :kk has no value" in ended.err) == (1, True)
    assert run_cli("-p", "k=1", "SELECT 1").code == 2
    assert run_cli("-p", "k", "SELECT 1").code == 2
