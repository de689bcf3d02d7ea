"""Options of several commands, and exit codes."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import click

from anabranch.cli.console import Console

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

Command = TypeVar("Command", bound=Callable[..., Any])


def settings(context: click.Context, option: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{pair!r} is not of the form key=value", ctx=context, param=option)
        found[key.strip()] = value
    return found


def parameters(context: click.Context, option: click.Parameter, pairs: tuple[str, ...]) -> dict[str, Any]:
    return {name: _value(text) for name, text in settings(context, option, pairs).items()}


def _value(text: str) -> Any:
    """The value of a text on the command line: NULL, true, false, a number, 'a text', or the text."""
    words = {"NULL": None, "true": True, "false": False}
    if text in words:
        return words[text]
    if re.fullmatch(r"[+-]?[0-9]{1,38}", text):
        return int(text)
    if re.fullmatch(r"[+-]?[0-9]{1,38}\.[0-9]{1,38}", text):
        return Decimal(text)
    if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?[eE][+-]?[0-9]{1,3}", text):
        return float(text)
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1] if quoted else text


def _switch(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def switch(context: click.Context, option: click.Parameter, value: bool) -> None:
        if value:
            setattr(context.find_object(Console), name, True)

    return switch


def console_options(command: Command) -> Command:
    command = click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_switch("debug"),
        help="Show stack traces of errors.",
    )(command)
    return click.option(
        "--quiet",
        "-q",
        is_flag=True,
        expose_value=False,
        callback=_switch("quiet"),
        help="Print no messages.",
    )(command)


def home_option(command: Command) -> Command:
    return click.option(
        "--home",
        envvar="ANABRANCH_HOME",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="Where the ledger lives (or ANABRANCH_HOME).",
    )(command)


def read_only_option(command: Command) -> Command:
    return click.option(
        "--read-only", is_flag=True, help="Open the home read-only; this is automatic while another process writes."
    )(command)


def spark_options(command: Command) -> Command:
    command = click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=settings,
        help="A Spark setting; may be repeated.",
    )(command)
    return click.option("--master", metavar="URL", help="The Spark master.  [default: local[*]]")(command)


def run_rows_option(command: Command) -> Command:
    return click.option("--run-rows", metavar="N", type=click.IntRange(min=1), help="A run takes at most N rows.")(
        command
    )


def backend_option(command: Command) -> Command:
    return click.option(
        "--backend",
        type=click.Choice(["auto", "spark", "driver"]),
        help="Where work runs: by size, all of it by Spark, or on the driver where it can.",
    )(command)


def seconds(value: str) -> float:
    from anabranch.sql.durations import parse_duration

    found = parse_duration(value)
    if not found or found < 0:
        raise click.BadParameter(f"{value!r} is not a length of time, such as 250ms or '2 seconds'")
    return found / 1_000_000
