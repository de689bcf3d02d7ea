"""Checks of the watermarks, sources and options of CREATE; opens no source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from anabranch.errors import NotSupported, SourceError, SqlError, UnknownName, WrongType, did_you_mean
from anabranch.sources import registry
from anabranch.sql import syntax
from anabranch.sql.calls import clock_calls, volatile_calls
from anabranch.sql.columns import Columns, Resolver, Scope
from anabranch.sql.syntax import SourceSpec, Statement
from anabranch.sql.text import Span, words

if TYPE_CHECKING:
    from anabranch.sinks.exports import Export

#: Types whose values have one text form in all engines.
KEY_TYPES = words("string varchar char tinyint byte smallint short int integer bigint long boolean date")


def wrong(statement: Statement, span: Span, message: str, hint: str | None = None) -> SqlError:
    return SqlError(message, text=statement.text, at=span, hint=hint)


def no_column(statement: Statement, span: Span, owner: str, name: str, columns: Iterable[str]) -> UnknownName:
    return _has_no(statement, span, f"{owner} has no column {name}", name, columns)


def _has_no(statement: Statement, span: Span, message: str, name: str, known: Iterable[str]) -> UnknownName:
    hint = did_you_mean(name, known)
    return UnknownName(message, text=statement.text, at=span, hint=hint)


def check_watermark(statement: Statement, mark: syntax.Watermark, columns: Columns) -> str:
    """The event time column, after checking the clause against the columns."""
    time = _event_time(statement, mark, columns)
    if mark.expression is not None:
        known = columns if mark.rule.kind == "punctuation" else {time: columns[time]}
        Resolver(statement.text, {}).expression(mark.expression.tokens, Scope(((None, known),)))
        found = [(token.text, Span(token.start, token.end)) for token in volatile_calls(mark.expression.tokens)]
        for name, span in [*found, *clock_calls(mark.expression.tokens)]:
            raise wrong(statement, span, f"{name} returns another value with each call")
    if mark.key is not None:
        _check_key(statement, mark.key, columns)
    if mark.lull is not None and not (
        isinstance(statement, syntax.CreateStream)
        and statement.source is not None
        and registry.is_live(statement.source.kind)
    ):
        raise NotSupported(
            "a clock cannot bound the event times of rows that do not arrive live",
            text=statement.text,
            at=mark.lull,
            hint="THEN BY CLOCK is for live sources (rate, kafka); elsewhere progress moves by ADVANCE STREAM s TO ...",
        )
    return time


def _check_key(statement: Statement, key: syntax.Name, columns: Columns) -> None:
    found = next((name for name in columns if name.lower() == str(key).lower()), None)
    if found is None:
        raise no_column(statement, key.span, "the stream", str(key), columns)
    type = (columns[found] or "").lower().split("(")[0].strip()
    if type and type not in KEY_TYPES:
        raise WrongType(
            f"progress cannot be kept by {found}, which is a {type.upper()}",
            text=statement.text,
            at=key.span,
            hint="PER KEY takes a column of text, whole numbers, booleans or dates",
        )


def _event_time(statement: Statement, mark: syntax.Watermark, columns: Columns) -> str:
    found = next((name for name in columns if name.lower() == mark.column.lower()), None)
    if found is None:
        raise no_column(statement, mark.span, "the stream", mark.column, columns)
    type = columns[found] or ""
    if not type.lower().startswith("timestamp"):
        hint = f"declare it as TIMESTAMP: ({found} TIMESTAMP, ...)"
        if type.upper() == "DATE":
            hint += "; a day is the time at which it starts"
        raise WrongType(
            f"the event time {found} is a {type.upper()}, not a TIMESTAMP",
            text=statement.text,
            at=mark.span,
            hint=hint,
        )
    return found


def check_source(statement: Statement, source: SourceSpec, kinds: Iterable[str]) -> None:
    """Refuse an unknown kind of source or unknown options; opens nothing."""
    kind = registry.find(source.kind)
    if kind is None or kind.name not in kinds:
        raise UnknownName(
            f"there is no source {source.kind}",
            text=statement.text,
            start=source.span.start,
            end=source.span.start + len(source.kind),
            hint=did_you_mean(source.kind, kinds),
        )
    check_options(statement, kind, source.options, source.spans, source.span)


def check_options(
    statement: Statement, kind: registry.Kind, options: Mapping[str, Any], spans: Mapping[str, Span], place: Span
) -> None:
    """Refuse options that a kind of source does not take."""
    try:
        kind.check_options(options)
    except SourceError as error:
        span = spans.get(error.option, place) if isinstance(error, registry.WrongOption) else place
        found = UnknownName if "has no option" in error.message else SqlError
        raise found(error.message, text=statement.text, at=span, hint=error.hint) from error


def check_policies(statement: syntax.CreateStream) -> None:
    """Refuse policies for events that cannot happen to a stream of its kind, or from which it cannot continue."""
    kind = registry.find(statement.source.kind) if statement.source is not None else None
    name = kind.name if kind is not None else "a stream without FROM"
    if statement.on_gap == "skip" and not (kind is not None and kind.gaps):
        able = ", ".join(each.name for each in registry.kinds().values() if each.gaps)
        problem, hint = f"ON GAP SKIP does not apply to {name}", f"it is for {able}"
        raise wrong(statement, statement.spans["GAP"], problem, hint=hint)
    change = statement.on_schema_change
    if change != "fail" and not (kind is not None and change in kind.on_schema_change):
        able = ", ".join(each.name for each in registry.kinds().values() if change in each.on_schema_change)
        problem, hint = f"ON SCHEMA CHANGE {change.upper()} does not apply to {name}", f"it is for {able}"
        raise wrong(statement, statement.spans["SCHEMA"], problem, hint=hint)


def check_sink(statement: syntax.CreateSink) -> dict[str, Any]:
    """The options of a sink, defaults included; the path as written."""
    from anabranch.sinks import kinds

    into = statement.into
    kind = kinds.find(into.kind)
    if kind is None:
        raise UnknownName(
            f"there is no sink {into.kind}",
            text=statement.text,
            start=into.span.start,
            end=into.span.start + len(into.kind),
            hint=did_you_mean(into.kind, kinds.names()),
        )
    check_options(statement, kind, into.options, into.spans, into.span)
    return kind.written(into.options)


def check_export(statement: syntax.CopyTo) -> Export:
    """The format, path and options of COPY ... TO."""
    from anabranch.sinks.exports import FORMATS, Export
    from anabranch.sources.paths import COMPRESSED
    from anabranch.sources.paths import FORMATS as ENDINGS

    options, spans, path = statement.options, statement.spans, statement.path
    known = ("format", "header", "sep", "overwrite")
    for name in options:
        if name not in known:
            raise _no_option(statement, "COPY ... TO", name, spans[name], known)
    if not path.strip() or "\0" in path or ("://" in path and not path.startswith("file://")):
        raise wrong(statement, statement.path_span, f"COPY writes to a local file, not to {path!r}")
    if path.lower().endswith(COMPRESSED):
        raise wrong(
            statement, statement.path_span, "COPY writes no compressed files", "parquet is compressed in itself"
        )
    named = {**ENDINGS, ".arrow": "arrow", ".feather": "arrow"}.get(PurePath(path.lower()).suffix)
    format = options.get("format", named)
    separator = options.get("sep", "\t" if format == "tsv" else ",")
    format = "csv" if format == "tsv" else format
    if format not in FORMATS:
        what = (
            f"there is no format {format}"
            if format is not None
            else f"the format of {path} cannot be inferred from its name"
        )
        span = spans.get("format", statement.path_span)
        raise wrong(statement, span, what, f"give one: (FORMAT csv), of {', '.join(FORMATS)}")
    for name in ("header", "overwrite"):
        if not isinstance(options.get(name, True), bool):
            raise wrong(statement, spans[name], f"{name} is true or false")
    if not isinstance(separator, str) or len(separator) != 1 or not separator.isascii():
        raise wrong(statement, spans["sep"], "the separator of a csv file is one character", "as in DELIMITER ';'")
    if format != "csv" and (extra := next((name for name in ("header", "sep") if name in options), None)) is not None:
        raise wrong(statement, spans[extra], f"{extra} is for csv files, and this is {FORMATS[str(format)]}")
    overwrite = options.get("overwrite") is True
    target = Path(path.removeprefix("file://"))
    return Export(str(format), target, overwrite, options.get("header", True) is True, separator)


def _no_option(statement: Statement, source: str, name: str, span: Span, known: tuple[str, ...]) -> UnknownName:
    return _has_no(statement, span, f"{source} has no option {name}", name, known)
