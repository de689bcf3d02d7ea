"""The command `anabranch`: arguments and options to function calls, errors to exit codes.

Help, the version and syntax errors must appear at once: this file imports nothing heavy at the top.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from anabranch import __version__
from anabranch.cli.console import Console
from anabranch.cli.console import describe as describe_error
from anabranch.cli.options import (
    FAILED,
    INTERRUPTED,
    WRONG_USAGE,
    backend_option,
    console_options,
    home_option,
    parameters,
    read_only_option,
    run_rows_option,
    seconds,
    spark_options,
)
from anabranch.cli.stopping import ended_by_signals
from anabranch.errors import AnabranchError, nearest

#: The default home of `run`, `compact` and `doctor`; a one-off query uses a temporary home.
DEFAULT_HOME = ".anabranch"
OUTPUTS = ("batch-table", "batch-csv", "csv", "json", "stream-json", "live-table", "live-csv", "arrow", "parquet")
#: Outputs to a file, whose path can follow them.
WRITTEN = ("arrow", "parquet")
#: The formats of `describe`.
PICTURES = ("text", "json", "dot", "svg", "mermaid")
QUERY = "query"


class Front(click.Group):
    """The commands, and SQL where none is named. Options may come before or after a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.arrange(list(args)))

    def arrange(self, args: list[str]) -> list[str]:
        """Move the command name to the front; SQL without one gets the name of the hidden command for it."""
        args = self._with_to(args)
        at = self._first_word(args)
        before = args if at is None else args[:at]
        for alone in ("--help", "-h", "--version"):
            if alone in before:
                return [alone]
        if not args or at is None:
            return [QUERY, *args] if args else args
        word = args[at]
        if word in self.commands and word != QUERY:
            return [word, *before, *args[at + 1 :]]
        if word.startswith("--"):
            # SQL that starts with a comment looks like an option; at the end, after "--", it does not.
            return [QUERY, *before, *args[at + 1 :], "--", word]
        return [QUERY, *args]

    def _with_to(self, args: list[str]) -> list[str]:
        """Rewrite `-o parquet FILE` to `-o parquet --to FILE`. An argument with a blank is SQL, not a file."""
        for at, (option, output, word) in enumerate(zip(args, args[1:], args[2:], strict=False)):
            file = word == "-" or not (word.startswith("-") or any(map(str.isspace, word)) or word in self.commands)
            if option in ("-o", "--output") and output in WRITTEN and file:
                return [*args[: at + 2], "--to", *args[at + 2 :]]
        return args

    def _first_word(self, args: list[str]) -> int | None:
        """The index of the first argument that is neither an option nor the value of one."""
        with_value = {
            name
            for command in self.commands.values()
            for option in command.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        at = 0
        while at < len(args):
            text = args[at]
            if text == "--":
                return None
            if not text.startswith("-") or text == "-" or (text.startswith("--") and text[2:3].isspace()):
                return at
            at += 2 if text in with_value else 1
        return None

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("anabranch", '[OPTIONS] "SQL; SQL"')
        formatter.write_usage("anabranch", "[OPTIONS] -f FILE", prefix="       ")
        formatter.write_usage("anabranch", "COMMAND [OPTIONS] ...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        options = [p for p in self.commands[QUERY].params if isinstance(p, click.Option)]
        records = [record for p in (*options, *own) if (record := p.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(records)
        self.format_commands(ctx, formatter)


def read_text(path: str) -> str:
    """The text of a script; '-' is stdin."""
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error


@click.group(cls=Front, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="anabranch %(version)s")
def cli() -> None:
    """Streaming SQL on Spark: answers that stay right, in whatever order rows arrive.

    \b
    anabranch "SELECT count(*) FROM 'bids/*.parquet'"
    anabranch -o stream-json -f script.sql
    anabranch run app.sql --home ledger
    """


@cli.command(QUERY, hidden=True)
@click.argument("sql", nargs=-1)
@click.option("-f", "--file", metavar="FILE", help="Take the statements from a file; '-' is stdin.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    help="How results are printed; behind arrow and parquet their FILE."
    "  [default: batch-table; live-table on a terminal for endless sources]",
)
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    callback=parameters,
    help="The value of :NAME in the SQL; may be repeated.",
)
@click.option("--to", metavar="FILE", help="Where -o arrow or -o parquet writes; '-' is stdout (arrow's default).")
@click.option("--overwrite", is_flag=True, help="Replace the file of --to if it exists.")
@click.option("--dry-run", is_flag=True, help="ALTER VIEW only says what it would keep, rebuild and refuse.")
@home_option
@read_only_option
@spark_options
@run_rows_option
@backend_option
@console_options
@click.pass_obj
def query(
    console: Console,
    sql: tuple[str, ...],
    file: str | None,
    output: str | None,
    parameters: dict[str, Any],
    to: str | None,
    overwrite: bool,
    dry_run: bool,
    home: str | None,
    read_only: bool,
    master: str | None,
    conf: dict[str, str],
    run_rows: int | None,
    backend: str | None,
) -> int:
    """Run SQL statements in order; every SELECT prints its result."""
    if sql and file is not None:
        raise click.UsageError("give either SQL or -f FILE, not both")
    if not sql and file is None:
        raise click.UsageError("there is nothing to do: give SQL, -f FILE or a command")
    if sql and (len(sql) > 1 or sql[0].isidentifier()):
        meant = nearest(sql[0], [name for name, command in cli.commands.items() if not command.hidden])
        if meant is not None:
            raise click.UsageError(f"there is no command {sql[0]}; did you mean {meant}?")
    if len(sql) > 1:
        raise click.UsageError(f"SQL has to be one argument: put it in quotes ({sql[1]!r} came after it)")
    text = sql[0] if file is None else read_text(file)
    from anabranch.cli import work
    from anabranch.sql.parameters import bind_parameters

    text = bind_parameters(text, (), parameters)
    # Input from a pipe runs as if typed: a program may insert the same row twice.
    target = work.Target(output, to, overwrite, dry_run, script=file not in (None, "-"))
    return work.execute(console, text, target, work.Settings(home, master, conf, run_rows, read_only, backend))


@cli.command()
@click.argument("script", metavar="APP.SQL")
@click.option("--until-idle", is_flag=True, help="End when the sources have nothing more.")
@click.option(
    "--run-time",
    metavar="TIME",
    callback=lambda _, __, value: None if value is None else seconds(value),
    help="About how long a run takes, and longer while rows wait.  [default: 250ms, none with --until-idle]",
)
@home_option
@spark_options
@run_rows_option
@backend_option
@console_options
@click.pass_obj
def run(
    console: Console,
    script: str,
    until_idle: bool,
    run_time: float | None,
    home: str | None,
    master: str | None,
    conf: dict[str, str],
    run_rows: int | None,
    backend: str | None,
) -> int:
    """Keep the views of a script going until Ctrl-C.

    Run again on the same home it goes on where it was. Without --home the home is .anabranch in this folder.
    """
    text = read_text(script)
    from anabranch.cli import work

    settings = work.Settings(home or DEFAULT_HOME, master, conf, run_rows, backend=backend)
    return work.run(console, text, until_idle, settings, run_time)


@cli.command()
@home_option
@read_only_option
@spark_options
@run_rows_option
@backend_option
@console_options
@click.pass_obj
def shell(
    console: Console,
    home: str | None,
    read_only: bool,
    master: str | None,
    conf: dict[str, str],
    run_rows: int | None,
    backend: str | None,
) -> int:
    """Type statements, one after the other.

    Without --home the home is .anabranch in this folder.
    """
    if not sys.stdin.isatty() or not console.out_is_terminal:
        raise click.UsageError("the shell needs a terminal; to run statements from a pipe: anabranch -f -")
    from anabranch.cli.line_editor import HISTORY, LineEditor
    from anabranch.cli.shell import Shell
    from anabranch.cli.work import Settings, open_session

    settings = Settings(home or DEFAULT_HOME, master, conf, run_rows, read_only, backend)
    with open_session(settings, console, reads=True) as session:
        console.message("Statements end with ;   \\? for help, \\q to leave")
        Shell(console, session, LineEditor(Path.home() / HISTORY, session.names)).run()
    return 0


@cli.command()
@click.argument("script", metavar="APP.SQL")
@console_options
@click.pass_obj
def check(console: Console, script: str) -> int:
    """Parse and bind a script without starting Spark."""
    text = read_text(script)
    from anabranch.cli import work

    return work.check(console, text)


@cli.command()
@click.argument("sql")
@click.option(
    "--format",
    "form",
    type=click.Choice(PICTURES),
    default=PICTURES[0],
    show_default=True,
    help="Words, a JSON document, or a picture of the nodes.",
)
@click.option("--to", metavar="FILE", help="Write it to a file.")
@click.option("--overwrite", is_flag=True, help="Replace the file of --to if it exists.")
@home_option
@read_only_option
@spark_options
@console_options
@click.pass_obj
def describe(
    console: Console,
    sql: str,
    form: str,
    to: str | None,
    overwrite: bool,
    home: str | None,
    read_only: bool,
    master: str | None,
    conf: dict[str, str],
) -> int:
    """Tell what a query would do, or what a view does: its nodes, their keys and their state.

    SQL is a query, a CREATE VIEW or the name of a view. It is not carried out; statements before it are.
    """
    from anabranch.cli import work

    settings = work.Settings(home, master, conf, read_only=read_only)
    return work.describe(console, sql, form, work.Target(None, to, overwrite), settings)


@cli.command()
@home_option
@spark_options
@console_options
@click.pass_obj
def compact(console: Console, home: str | None, master: str | None, conf: dict[str, str]) -> int:
    """Reduce the tables of a home now."""
    home = home or DEFAULT_HOME
    if not os.path.isdir(home):
        raise click.UsageError(f"there is no home at {home}: name one with --home or ANABRANCH_HOME")
    from anabranch.cli import work

    return work.compact(console, work.Settings(home, master, conf))


@cli.command()
@click.option("--no-spark", is_flag=True, help="Do not start a Spark session.")
@home_option
@spark_options
@console_options
@click.pass_obj
def doctor(console: Console, no_spark: bool, home: str | None, master: str | None, conf: dict[str, str]) -> int:
    """Check Python, Java, Spark, the packages, disk space and the home."""
    from anabranch.cli import doctor as checks

    return checks.examine(console, home or DEFAULT_HOME, start_spark=not no_spark, master=master, conf=conf)


_PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


@cli.command(context_settings=_PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def demo(arguments: tuple[str, ...]) -> int:
    """A live bid stream, three views, and the proof that no row is lost."""
    from anabranch.demo import main as demo_main

    return demo_main(list(arguments)) or 0


@cli.command(context_settings=_PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> int:
    """Measure against hand-written Structured Streaming, Spark batch and DuckDB."""
    from anabranch.bench import main as bench_main

    return bench_main(list(arguments)) or 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    console = Console()
    console.prepare()
    with ended_by_signals():
        return _main(console, arguments)


def _main(console: Console, arguments: Sequence[str] | None) -> int:
    try:
        if "_ANABRANCH_COMPLETE" in os.environ:  # a shell requests completions
            cli.main(prog_name="anabranch")
        # Not cli.main otherwise: it handles closed pipes differently.
        words = sys.argv[1:] if arguments is None else list(arguments)
        with cli.make_context("anabranch", words, obj=console) as context:
            code = cli.invoke(context)
        console.flush()
        return int(code or 0)
    except click.exceptions.Exit as ended:
        console.flush()
        return ended.exit_code
    except BrokenPipeError:
        # The reader has closed the pipe, which is no error.
        console.give_up_output()
        return 0
    except click.exceptions.NoArgsIsHelpError as help_asked:
        console.line(help_asked.ctx.get_help() if help_asked.ctx else "")
        return 0
    except click.ClickException as error:
        wrong = getattr(error, "ctx", None)
        path = wrong.command_path.replace(f" {QUERY}", "") if wrong else "anabranch"
        console.error(f"{error.format_message()}\n  see: {path} --help")
        return WRONG_USAGE
    except (KeyboardInterrupt, click.Abort):
        console.end_status()
        return INTERRUPTED
    except AnabranchError as error:
        console.trace(error)
        console.error(str(error))
        return error.exit_code
    except Exception as error:
        console.trace(error)
        console.error(describe_error(error))
        if not console.debug:
            console.message("  --debug shows where it happened")
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
