"""The kinds of sources: what each is called, which options it takes, and how it is opened.

Whoever has to know about kinds asks here: the parser's checks, CREATE, EXPLAIN, SHOW SOURCES, completion and the docs.
A kind is declared beside its code, as `KINDS` of a module of this package, by `register_source`, or by another package
under the entry point group `anabranch.sources`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anabranch.errors import SourceError, did_you_mean, nearest
from anabranch.sources import secrets
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.sources.base import Source
    from anabranch.sources.lookup import LookupSource

ENTRY_POINTS = "anabranch.sources"
#: Modules of this package that declare kinds. They import no driver of a database until one is opened.
MODULES = (
    "file_kinds", "follow", "delta", "iceberg", "rate", "kafka", "postgres", "postgres_changes", "mysql",
    "mysql_changes", "sqlite", "duckdb_table", "excel", "redis", "capture_function", "spark",
)  # fmt: skip


_CLASSES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "whole": (int,),
    "number": (int, float),
    "flag": (bool,),
    "duration": (str, int),
}


class WrongOption(SourceError):
    """Something wrong with one option of a source."""

    def __init__(self, option: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.option = option


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a kind, as in `kind(name => value)`."""

    name: str
    doc: str
    type: Literal["text", "whole", "number", "flag", "duration"] = "text"
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    secret: bool = False  # never written down: comes from env('...') or secret('...')

    def check(self, kind: str, value: Any) -> None:
        """Raise WrongOption unless a value can be that of this option."""
        if secrets.is_reference(value):
            return
        if self.secret:
            hint = f"{self.name} => env('NAME') takes it from the environment, secret('name') from the secrets file"
            raise WrongOption(self.name, f"the {self.name} of {kind} must not be written down", hint=hint)
        classes = _CLASSES[self.type]
        if isinstance(value, bool) is not (self.type == "flag") or not isinstance(value, classes):
            raise WrongOption(self.name, f"{self.name} must be {self.wanted}, not {value!r}")
        if isinstance(value, str) and (not value or "\0" in value):
            raise WrongOption(self.name, f"the {self.name} of {kind} must not be empty")
        if self.choices and value not in self.choices:
            choices = ", ".join(f"'{choice}'" for choice in self.choices)
            raise WrongOption(self.name, f"{self.name} cannot be {value!r}", hint=f"it is one of {choices}")
        number: Any = value
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            raise WrongOption(self.name, f"{self.name} must be {self.wanted}, not {value!r}")

    @property
    def wanted(self) -> str:
        """What its values are.

        >>> Option(name="rows", doc="", type="whole", low=1).wanted
        'a whole number of at least 1'
        """
        name = {
            "text": "a text",
            "whole": "a whole number",
            "number": "a number",
            "flag": "true or false",
            "duration": "a length of time",
        }[self.type]
        if self.low is not None and self.high is not None:
            return f"{name} from {self.low:,} to {self.high:,}"
        return name if self.low is None else f"{name} of at least {self.low:,}"


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a source of a stream is opened with. `seen` are the stretches that the ledger has of it."""

    options: Mapping[str, Any]
    fields: tuple[Field, ...] | None
    spark: Callable[[], SparkSession]
    now: Callable[[], int]
    scratch: Callable[[], Path]
    folder: Callable[[], Path]  # of the stream's own, in its home
    seen: Callable[[], list[Any]] = list
    skips_gaps: bool = False  # ON GAP SKIP
    on_schema_change: str = "ignore"  # ON SCHEMA CHANGE, of streams
    inferred: bool = False  # whether the columns were found out, not declared


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of source. `stream` opens one for CREATE STREAM, `table` one for CREATE TABLE, lookups and FROM.

    `abilities` are words for people: what can be cut by rows, read by key, pushed down.
    """

    name: str
    doc: str
    example: str
    options: tuple[Option, ...]
    stream: Callable[[Opening], Source] | None = None
    table: Callable[[Mapping[str, Any], tuple[Field, ...] | None], LookupSource] | None = None
    columns: tuple[Field, ...] | None = None  # where they are always the same
    hidden: tuple[Field, ...] = ()  # what is known of each row besides, for streams that declare a column of this name
    live: bool = False  # rows come as they happen, so that the clock says something about their times
    files: bool = False  # rows are in files that Spark reads
    reads_once: bool = False  # what was read cannot be read again: a stream of it keeps its rows
    stored: tuple[str, Mapping[str, Any]] | None = None  # the kind and options that stand for it in the ledger
    endings: tuple[str, ...] = ()  # of paths that are meant without the name of the kind
    check: Callable[[Mapping[str, Any]], None] | None = None  # what no option says alone
    gaps: bool = False  # whether a position can be gone, and a stream go on behind the gap
    on_schema_change: tuple[str, ...] = ()  # what a stream can do but fail when columns change
    open_options: bool = False  # options that are not listed go on to what is opened
    modules: tuple[str, ...] = ()  # what has to be importable
    extra: str | None = None  # of `pip install anabranch[extra]`, which brings the modules
    abilities: tuple[str, ...] = ()

    def missing(self) -> tuple[str, ...]:
        """The modules that it needs and that are not installed."""
        return tuple(name for name in self.modules if importlib.util.find_spec(name) is None)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise WrongOption or SourceError where options do not fit, without opening anything."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            if name in known:
                known[name].check(self.name, value)
            elif not self.open_options:
                raise WrongOption(name, f"{self.name} has no option {name}", hint=did_you_mean(name, known))
        for option in self.options:
            if option.required and option.name not in options:
                typed = nearest(option.name, options.keys() - known.keys())
                if typed is not None:
                    raise WrongOption(typed, f"{self.name} has no option {typed}", hint=f"did you mean {option.name}?")
                raise SourceError(f"{self.name} needs the option {option.name}", hint=f"as in {self.example}")
        if self.check is not None:
            self.check(options)

    def open_stream(self, opening: Opening) -> Source:
        self._check_modules()
        assert self.stream is not None, f"{self.name} is no source of streams"
        return self.stream(opening)

    def open_table(self, options: Mapping[str, Any], fields: tuple[Field, ...] | None = None) -> LookupSource:
        self._check_modules()
        assert self.table is not None, f"{self.name} is no source of tables"
        return self.table(secrets.resolve(options), fields)

    def _check_modules(self) -> None:
        missing = self.missing()
        if missing:
            package = f"anabranch[{self.extra}]" if self.extra else missing[0]
            raise SourceError(f"{self.name} needs the Python package {missing[0]}", hint=f"pip install '{package}'")


_KINDS: dict[str, Kind] = {}
_LOADED: list[bool] = []


def register_source(kind: Kind) -> None:
    """Make a kind known to every home of this process."""
    _load()
    _KINDS[kind.name.lower()] = kind


def kinds() -> Mapping[str, Kind]:
    """Every kind there is."""
    _load()
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        find(point.name)
    return dict(_KINDS)


def find(name: str | None) -> Kind | None:
    """The kind of a name, if there is one."""
    if name is None:
        return None
    _load()
    key = name.lower()
    if key not in _KINDS:
        for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=key):
            found = point.load()
            if isinstance(found, Kind):
                _KINDS[key] = found
    return _KINDS.get(key)


def is_files(name: str | None) -> bool:
    """Whether a name is that of files in some format, or of any."""
    kind = find(name)
    return kind is not None and kind.files


def of_path(path: str) -> str:
    """The kind that a path in quotes is of.

    >>> of_path("a.xlsx"), of_path("in/*.csv")
    ('excel', 'files')
    """
    _load()
    lower = path.lower()
    return next((kind.name for kind in _KINDS.values() if kind.endings and lower.endswith(kind.endings)), "files")


def is_live(name: str | None) -> bool:
    kind = find(name)
    return kind is not None and kind.live


def reads_once(name: str | None) -> bool:
    kind = find(name)
    return kind is not None and kind.reads_once


def is_table(name: str | None) -> bool:
    """Whether a name is that of a kind whose tables live outside: they can be read, and looked up by key."""
    kind = find(name)
    return kind is not None and kind.table is not None


def formats() -> list[str]:
    """The formats of files that have a kind of their own."""
    return [name for name, kind in kinds().items() if kind.files and name != "files"]


def of_streams() -> list[str]:
    return [name for name, kind in kinds().items() if kind.stream is not None]


def of_tables() -> list[str]:
    return [name for name, kind in kinds().items() if kind.table is not None or kind.files]


def _load() -> None:
    if not _LOADED:
        _LOADED.append(True)
        for module in MODULES:
            for kind in importlib.import_module(f"anabranch.sources.{module}").KINDS:
                _KINDS.setdefault(kind.name, kind)
