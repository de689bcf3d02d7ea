"""Where files are and how they are to be read: paths, formats and options, each checked before anything is opened."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError, SourceError, did_you_mean
from anabranch.sources.listing import is_shown
from anabranch.sources.registry import WrongOption
from anabranch.sql.durations import parse_duration

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".orc": "orc",
    ".txt": "text",
    ".log": "text",
    ".xml": "xml",
    ".avro": "avro",
}
#: Formats of which rows come with types, each with its columns apart; and those of fields in lines of text.
COLUMNAR, SEPARATED = ("parquet", "orc"), ("csv", "tsv")
READABLE = (*SEPARATED, "json", "text", "xml", *COLUMNAR, "avro")
CALLED = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro"}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")
#: Options that are ours; everything else goes to Spark's reader as it is.
OWN_OPTIONS = ("path", "format", "settle", "bad_rows", "follow")
TEXT_OPTIONS = {
    "header", "sep", "delimiter", "quote", "escape", "encoding", "charset", "comment", "nullvalue", "nanvalue",
    "positiveinf", "negativeinf", "dateformat", "timestampformat", "timestampntzformat", "multiline", "linesep",
    "ignoreleadingwhitespace", "ignoretrailingwhitespace", "emptyvalue", "locale", "maxcolumns", "maxcharspercolumn",
    "unescapedquotehandling", "inferschema", "samplingratio", "allowcomments", "allowunquotedfieldnames",
    "allowsinglequotes", "allownumericleadingzeros", "allowbackslashescapinganycharacter", "primitivesasstring",
    "prefersdecimal", "prefersdate", "timezone", "mergeschema", "recursivefilelookup", "enforceschema",
    "dropfieldifallnull", "allowunquotedcontrolchars", "preferdate", "wholetext", "rowtag", "attributeprefix",
    "valuetag", "excludeattribute", "ignorenamespace", "ignoresurroundingspaces", "wildcardcolname",
}  # fmt: skip
#: A text file is whole when it has not changed for so long, in microseconds.
SETTLE = 2_000_000
#: Schemes of object stores that Spark reads with the right package.
STORES = ("s3", "s3a", "gs", "abfs", "abfss")
CHECK = "check the path; a relative one starts at the current folder"


def format_of(path: str, given: Any = None) -> str:
    """The format a path's name tells, or the one that was given."""
    if given is not None:
        return _readable(str(given).lower())
    name = path.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    for ending, format in FORMATS.items():
        if name.endswith(ending):
            return _readable(format)
    if scheme_of(path) is not None:
        raise SourceError(f"the format of {path} cannot be inferred from its name", hint="give it: format => 'csv'")
    found = {FORMATS[Path(each).suffix] for each in matches(path)[:1000] if Path(each).suffix in FORMATS}
    if len(found) == 1:
        return _readable(found.pop())
    if not matches(path):
        raise nothing_at(path)
    raise SourceError(
        f"the format of {path} cannot be inferred from its name",
        hint="give it: csv('...'), json('...') or parquet('...')",
    )


def _readable(format: str) -> str:
    if format not in READABLE:
        raise SourceError(f"there is no format {format}", hint=did_you_mean(format, READABLE))
    return format


def nothing_at(path: str) -> SourceError:
    """What is told where there is no file to read."""
    if Path(path).is_dir():
        return SourceError(f"the folder {path} has no files", hint="put a file there first, or name another folder")
    return SourceError(f"no file matches {path}", hint=near(path) or CHECK)


def near(path: str) -> str | None:
    """The file in the same folder whose name is the nearest, or those that there are, of the formats that are known."""
    folder, name = os.path.split(path.removeprefix("file://"))
    try:
        with os.scandir(folder or ".") as there:
            names = [each.name for each in islice(there, 1000) if is_shown(each.name) and each.is_file()]
    except OSError:
        return None
    known = tuple(ending + packed for ending in FORMATS for packed in ("", *COMPRESSED))
    return did_you_mean(name, [each for each in names if each.lower().endswith(known)])


def check_options(options: Mapping[str, Any], format: str) -> None:
    for name in options:
        if name.lower() not in TEXT_OPTIONS:
            raise SourceError(
                f"{format} files have no option {name}",
                hint=did_you_mean(name, [*OWN_OPTIONS, *TEXT_OPTIONS]),
            )


def check_file_options(options: Mapping[str, Any]) -> None:
    """Raise WrongOption where the options of files do not fit; nothing is opened."""
    for name in options:
        if name.lower() not in TEXT_OPTIONS and name.lower() not in OWN_OPTIONS:
            hint = did_you_mean(name, (*OWN_OPTIONS, *TEXT_OPTIONS))
            raise WrongOption(name, f"files has no option {name}", hint=hint)
    if str(options.get("format")).lower() == "xml" and not any(name.lower() == "rowtag" for name in options):
        raise SourceError("xml needs a rowTag", hint="the tag of a row, as in xml('in/*.xml', rowTag => 'order')")
    checks: dict[str, Callable[[Any], object]] = {
        "path": lambda path: check_scheme(str(path)),
        "format": lambda format: format_of("", format),
        "settle": settle_of,
        "bad_rows": skips,
    }
    for name, check in checks.items():
        try:
            if options.get(name) is not None:
                check(options[name])
        except AnabranchError as error:
            raise WrongOption(name, error.message, hint=error.hint) from error


def settle_of(given: Any) -> int:
    """How long a text file must not have changed, in microseconds."""
    if given is None:
        return SETTLE
    found = 0 if given in (0, "0") and given is not False else parse_duration(given) if isinstance(given, str) else None
    if found is None or found < 0:
        raise SourceError(f"settle must be a length of time, not {given!r}", hint="as in settle => INTERVAL 2 SECONDS")
    return found


def skips(given: Any) -> bool:
    """Whether bad rows are skipped, by the option `bad_rows`."""
    if given not in (None, "fail", "skip"):
        raise SourceError(f"bad_rows cannot be {given!r}", hint="it is 'fail' or 'skip'")
    return str(given) == "skip"


def scheme_of(path: str) -> str | None:
    """The scheme of a path that is not on this machine."""
    scheme, found, _ = path.partition("://")
    return scheme if found and scheme.lower() != "file" and not os.path.exists(path) else None


def check_scheme(path: str) -> None:
    """Only files of this machine and of some stores can be read: of others it must not look as if there were none."""
    scheme = scheme_of(path)
    if scheme is not None and scheme.lower() not in STORES:
        listed = ", ".join(f"{each}://" for each in STORES)
        raise SourceError(f"files of {scheme}:// cannot be read", hint=f"local files can, and {listed}")
    if (
        scheme is not None
        and "@" in path.partition("://")[2].partition("/")[0]
        and scheme.lower() not in ("abfs", "abfss")
    ):
        raise SourceError("a path must not have keys in it", hint=f"spark.hadoop.fs.{scheme}.* are settings for them")


def check_path(path: str) -> None:
    """Whether a path can be looked into. A folder may be empty, and a file or glob may match nothing yet."""
    check_scheme(path)
    if scheme_of(path) is not None:
        return
    plain = path.removeprefix("file://")
    named = glob.has_magic(plain) and not os.path.exists(plain)
    folder = plain
    while named and glob.has_magic(folder):
        folder = os.path.dirname(folder)
    if not named and not os.path.isdir(plain):
        if not os.path.exists(plain) and not any(plain.lower().endswith(each) for each in (*FORMATS, *COMPRESSED)):
            raise SourceError(
                f"there is no file or folder {plain}",
                hint=near(plain) or CHECK,
            )
        folder = os.path.dirname(plain)
    try:
        with os.scandir(folder or "."):
            pass
        if os.path.isfile(plain):
            with open(plain, "rb"):
                pass
    except FileNotFoundError as error:
        raise SourceError(f"there is no folder {folder}", hint=CHECK) from error
    except OSError as error:
        raise SourceError(f"{error.filename or plain} cannot be read: {error.strerror}") from error


def absolute(path: str) -> str:
    """A path that means the same in another folder; one of another system stays what it is."""
    return path if scheme_of(path) is not None else str(Path(path.removeprefix("file://")).absolute())


def is_pipe(path: str) -> bool:
    """Whether a path is that of a pipe, or of whatever a process was given under a number."""
    if path.startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/")):
        return True
    return os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)


def matches(path: str) -> list[str]:
    plain = path.removeprefix("file://")
    if os.path.isdir(plain):
        return [os.path.join(plain, name) for name in os.listdir(plain) if os.path.isfile(os.path.join(plain, name))]
    if os.path.exists(plain):
        return [plain]
    return [name for name in glob.glob(plain, recursive=True) if os.path.isfile(name)]
