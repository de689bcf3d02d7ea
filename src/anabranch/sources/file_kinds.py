"""The kinds of sources that are files, and who reads those of a path."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.sources.files import FilesSource
from anabranch.sources.objects import ObjectsSource
from anabranch.sources.paths import READABLE, SEPARATED, check_file_options, scheme_of
from anabranch.sources.registry import Kind, Opening, Option


def source_class(path: str) -> type[FilesSource]:
    """Who reads the files of a path: those of this machine, or of a store."""
    if scheme_of(path) is None:
        return FilesSource
    return ObjectsSource


def _open(format: str | None) -> Callable[[Opening], FilesSource]:
    def opened(opening: Opening) -> FilesSource:
        options = opening.options if format is None else {**opening.options, "format": format}
        made = source_class(str(options.get("path")))
        return made(
            options,
            opening.spark,
            opening.fields,
            opening.seen,
            now=opening.now,
            scratch=opening.scratch,
            inferred=opening.inferred,
            adds=opening.on_schema_change == "add",
        )

    return opened


_ABILITIES = dict.fromkeys((*SEPARATED, "json", "text"), ("cut by rows",)) | {"parquet": ("cut by groups of rows",)}


def _kind(name: str, doc: str, format: str | None) -> Kind:
    formats = () if format else (Option(name="format", doc=f"{', '.join(READABLE)}; else the name tells"),)
    return Kind(
        name=name,
        doc=doc,
        example=f"{name}(path => 'in/*.{format or 'csv'}')",
        options=(
            Option(
                name="path", doc="a file, a folder or a glob; of this machine, or s3://, gs://, abfs://", required=True
            ),
            *formats,
            Option(
                name="settle",
                type="duration",
                doc="a text file is whole when it has not changed for so long; 2 seconds",
            ),
            Option(name="follow", type="flag", doc="of a stream: one file as tail -F has it, with rotation"),
            Option(name="bad_rows", doc="'fail' or 'skip', where a query reads the files", default="fail"),
        ),
        stream=_open(format),
        files=True,
        on_schema_change=("ignore", "add"),
        open_options=True,
        check=lambda options: check_file_options(options if format is None else {**options, "format": format}),
        modules=("fastavro", "pandas") if format == "avro" else (),
        extra="avro" if format == "avro" else None,
        abilities=_ABILITIES.get(format or "csv", ("cut by files",)),
    )


KINDS = (
    _kind("files", "files of this machine, by their names", None),
    _kind("csv", "CSV as in RFC 4180; further options are Spark's", "csv"),
    _kind("tsv", "values separated by tabs; further options are Spark's", "tsv"),
    _kind("json", "a JSON object a line; further options are Spark's", "json"),
    _kind("parquet", "Parquet", "parquet"),
    _kind("orc", "ORC", "orc"),
    _kind("avro", "Avro", "avro"),
    _kind("text", "lines of text, as one column", "text"),
    _kind("xml", "XML documents; rowTag says which elements are rows, further options are Spark's", "xml"),
)
