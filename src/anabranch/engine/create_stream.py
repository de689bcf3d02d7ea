"""CREATE STREAM."""

from __future__ import annotations

import re
from typing import Any

from anabranch.engine.core import Core
from anabranch.engine.drop import replace_or_commit
from anabranch.engine.frames import arrow_schema, struct, translate
from anabranch.engine.names import Names
from anabranch.errors import AnabranchError, SourceError, SqlError, WrongType
from anabranch.ledger import Draft, TableChange
from anabranch.plan.definitions import Stream
from anabranch.plan.stored import to_json
from anabranch.sources import registry
from anabranch.sources.files import FilesSource
from anabranch.sources.paths import absolute, check_path, format_of, is_pipe, scheme_of
from anabranch.sql.definitions import check_policies, check_watermark
from anabranch.sql.syntax import CreateStream, CreateTable, Expression, SourceSpec
from anabranch.types import Field

DEFAULT_IDLE = 30_000_000
DEFAULT_AHEAD = 300_000_000


def create_stream(names: Names, statement: CreateStream, *, again_is_fine: bool) -> str:
    core = names.core
    name = names.free(statement, statement.name, "stream", again_is_fine)
    if name is None:
        return f"stream {statement.name} already exists"
    kind: str | None = None
    options: dict[str, Any] = {}
    fields = tuple(declared_fields(core, statement))
    check_policies(statement)
    if statement.source is not None:
        try:
            kind, options, fields = _source(core, statement, statement.source, fields)
        except SqlError:
            raise
        except AnabranchError as error:
            raise error.placed(statement.text, statement.source.span) from error
    time = _event_time(core, statement, fields)
    keep = statement.keep or ("all" if kind is None or registry.reads_once(kind) else "nothing")
    mark = statement.watermark
    stream = Stream(
        names.new_id(name),
        name,
        statement.sql,
        fields,
        time,
        mark.rule if mark is not None else None,
        _idle(statement, kind),
        (mark.ahead if mark is not None else None) or DEFAULT_AHEAD,
        kind,
        options,
        keep,
        statement.fail_on_bad,
        0 if keep == "all" else None,
        _watermark_key(statement, fields),
        mark is not None and mark.lull is not None,
        statement.on_gap,
        statement.on_schema_change,
        not statement.columns,
    )
    schemas = {stream.rows_table: arrow_schema(stream.row_fields)} if keep == "all" else {}
    tables = {stream.rows_table: TableChange()} if keep == "all" else {}
    draft = Draft("create", tables=tables, catalog={stream.id: to_json(stream)}, schemas=schemas)
    replace_or_commit(core, statement, draft)
    return f"stream {stream.name} created"


def _source(
    core: Core, statement: CreateStream, given: SourceSpec, fields: tuple[Field, ...]
) -> tuple[str, dict[str, Any], tuple[Field, ...]]:
    """The kind and the options of a source as they are stored, and the columns: those that are declared, or its own."""
    kind, options = given.kind, dict(given.options)
    if registry.is_files(kind) and options.pop("follow", False):
        check_path(str(options.get("path", "")))
        options["path"] = absolute(str(options["path"]))
        kind, options = "follow", options if kind == "files" else {**options, "format": kind}
        options = with_header(options, fields)
    if registry.is_files(kind) and "path" in options:
        _check_rereadable(options)
    source = core.make_source(kind, options, fields or None)
    if isinstance(source, FilesSource) and scheme_of(source.path) is not None:
        source.listing()  # fails for a store that cannot be listed, which would otherwise look empty
    if kind != "files" and registry.is_files(kind):
        kind, options = "files", {**options, "format": kind}
    if kind == "files":
        options = with_header(options, () if statement.on_schema_change == "add" else fields)
    fields = fields or _unreserved(source.fields())
    found = registry.find(kind)
    if found is not None and found.stored is not None:
        kind, options = found.stored[0], {**found.stored[1], **options}
    if statement.keep == "nothing" and registry.reads_once(kind):
        hint = "remove KEEP NOTHING: the stream keeps its rows"
        raise SourceError("the rows of this source cannot be read again", hint=hint)
    if kind == "files" and "path" in options:
        options["path"] = absolute(str(options["path"]))
    return kind, options, fields


def _check_rereadable(options: dict[str, Any]) -> None:
    check_path(str(options["path"]))
    if is_pipe(str(options["path"])):
        hint = "create it without FROM, and COPY from the pipe"
        raise SourceError("a pipe can be read once, and a stream may have to be read again", hint=hint)
    if "bad_rows" in options:
        hint = "ON ERROR FAIL at the end of CREATE STREAM stops it at a bad row"
        raise SourceError("a stream sets bad rows aside, in sys.bad_rows", hint=hint)


def declared_fields(core: Core, statement: CreateStream | CreateTable) -> list[Field]:
    fields = []
    _ = core.spark  # Spark's parser reads types
    for column in statement.columns:
        try:
            type = struct((Field(column.name, column.type),)).fields[0].dataType.simpleString()
        except Exception as error:
            raise WrongType(
                f"{column.type} is not a type of Spark SQL",
                text=statement.text,
                at=column.span,
                hint="an array is ARRAY<INT>" if "[" in column.type else None,
            ) from error
        # Times are stored as UTC timestamps. Texts have any length: Spark has no other type for rows.
        type = re.sub(r"\b(var)?char\(\d+\)", "string", type)
        fields.append(Field(column.name, "timestamp" if type == "timestamp_ntz" else type))
    return fields


def _event_time(core: Core, statement: CreateStream, fields: tuple[Field, ...]) -> str | None:
    mark = statement.watermark
    if mark is None:
        return None
    time = check_watermark(statement, mark, {field.name: field.type for field in fields})
    if mark.expression is not None:
        wanted = "boolean" if mark.rule.kind == "punctuation" else "timestamp"
        _check_rule(core, statement, mark.expression, wanted, fields)
    return time


def _check_rule(core: Core, statement: CreateStream, given: Expression, wanted: str, fields: tuple[Field, ...]) -> None:
    """Have Spark analyse the rule's expression over a row."""

    def wrong(message: str) -> WrongType:
        return WrongType(message, text=statement.text, at=given.span)

    try:
        frame = core.frames.empty(fields).selectExpr(f"({given.sql(statement.text)})")
        type = frame.schema.fields[0].dataType.simpleString()
    except Exception as error:
        found = translate(error)
        raise wrong(found.message if isinstance(found, AnabranchError) else str(found)) from error
    if type.removesuffix("_ntz") != wanted and not (wanted == "timestamp" and type == "date"):
        raise wrong(f"this is not a {'time' if wanted == 'timestamp' else 'condition'}, but of type {type.upper()}")


def _idle(statement: CreateStream, kind: str | None) -> int | None:
    """How long a silent partition holds progress back. By key, the stream sets it, or it follows from the clock."""
    mark = statement.watermark
    if mark is None or mark.key is None or registry.is_live(kind):
        return (mark.idle if mark is not None else None) or DEFAULT_IDLE
    return mark.idle


def _watermark_key(statement: CreateStream, fields: tuple[Field, ...]) -> str | None:
    mark = statement.watermark
    if mark is None or mark.key is None:
        return None
    return next(field.name for field in fields if field.name.lower() == str(mark.key).lower())


def with_header(options: dict[str, Any], declared: tuple[Field, ...]) -> dict[str, Any]:
    """The options with a header where columns were inferred from one: it is not a row."""
    text = format_of(str(options.get("path", "")), options.get("format")) in ("csv", "tsv")
    return {"header": True, **options} if text and not declared else options


def _unreserved(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The columns of a source; refuses names that runs reserve, which the user has to exclude."""
    taken = [field.name for field in fields if field.name.startswith("_")]
    if taken:
        raise SourceError(
            f"the source has a column {taken[0]}, and names that start with _ are Anabranch's own",
            hint="name the columns that you want: CREATE STREAM s (a BIGINT, ...) FROM ...",
        )
    return fields
