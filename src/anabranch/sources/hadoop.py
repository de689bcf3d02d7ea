"""Files of object stores, through Hadoop's file systems inside Spark's JVM: listed and read with the same settings.

An object is there as a whole or not at all, and is never appended to. One that is replaced after it was read is
reported, as a file is. Where rows are is for Spark to read; the driver reads footers and headers only.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TypeVar

from anabranch.errors import SourceError
from anabranch.sources.listing import File, is_shown
from anabranch.sources.parts import Part, open_compressed
from anabranch.sources.quotes import Dialect, Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = TypeVar("Found")
_BEGIN = re.compile(r"[{,](?=\w+\{path=)")
_STATUS = re.compile(r"\w*\{path=(.*); isDirectory=(true|false); length=(\d+);.*?modification_time=(\d+);", re.DOTALL)
#: What brings the file system of a scheme; {} is the version of Hadoop that Spark has.
PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws:{}",
    "abfs": "org.apache.hadoop:hadoop-azure:{}",
    "abfss": "org.apache.hadoop:hadoop-azure:{}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:3.1.3",
}


def url(path: str) -> str:
    """A path as Hadoop has it: `s3://` is the store that its `s3a://` reads."""
    return re.sub(r"^s3n?://", "s3a://", path, flags=re.IGNORECASE)


class Store:
    """The file system of one URL."""

    def __init__(self, path: str, spark: Callable[[], SparkSession]) -> None:
        self.path = path
        self._spark = spark
        self._opened: tuple[Any, Any] | None = None

    def list(self) -> list[File]:
        """Every file that matches: of a folder, those in it."""

        def listed(system: Any, jvm: Any) -> list[str]:
            path = jvm.org.apache.hadoop.fs.Path(self.path)
            found = system.globStatus(path)
            if found is not None and len(found) == 1 and found[0].isDirectory():
                found = system.listStatus(found[0].getPath())
            if not found:
                return []
            # In one call: asking for each file by itself takes longer than the store does. A name may look like the
            # beginning of another file: then there are too many.
            listing = str(jvm.org.apache.commons.lang3.ArrayUtils.toString(found))
            each = _BEGIN.split(listing)[1:]
            return each if len(each) == len(found) else [str(status.toString()) for status in found]

        return sorted(filter(None, map(_file, self._do(listed))), key=lambda file: (file.time, file.name))

    def status(self, name: str) -> tuple[int, int] | None:
        """Size and time of change of a file; None if it is gone."""

        def status_of(system: Any, jvm: Any) -> tuple[int, int] | None:
            path = jvm.org.apache.hadoop.fs.Path(name)
            if not system.exists(path):
                return None
            found = system.getFileStatus(path)
            return int(found.getLen()), int(found.getModificationTime()) * 1_000_000

        return self._do(status_of)

    def open(self, name: str) -> IO[bytes]:
        size = (self.status(name) or (0, 0))[0]
        return io.BufferedReader(_Object(self, name, size), 1 << 16)

    def open_text(self, name: str) -> IO[str]:
        content = open_compressed(self.open(name), name)
        return io.TextIOWrapper(content, encoding="utf-8-sig", errors="replace", newline="")

    def has_long_number(self, name: str, digits: int) -> bool:
        return True  # nobody looks

    def layout(self, part: Part, dialect: Dialect) -> Layout:
        """Whether there are newlines within quotes is not looked up: it would take reading all of it."""
        return Layout(multiline=True)

    def bytes(self, name: str, start: int, count: int) -> bytes:
        def read(system: Any, jvm: Any) -> bytes:
            stream = system.open(jvm.org.apache.hadoop.fs.Path(name))
            try:
                stream.seek(start)
                return bytes(stream.readNBytes(count))
            finally:
                stream.close()

        return self._do(read)

    def _do(self, work: Callable[[Any, Any], Found]) -> Found:
        from py4j.protocol import Py4JError

        session = self._spark()
        jvm: Any = session.sparkContext._jvm
        try:
            if self._opened is None:
                conf = session._jsparkSession.sessionState().newHadoopConf()
                self._opened = jvm.org.apache.hadoop.fs.Path(self.path).getFileSystem(conf), jvm
            return work(*self._opened)
        except Py4JError as error:
            raise self._source_error(error, jvm) from error

    def _source_error(self, error: Any, jvm: Any) -> SourceError:
        """What went wrong, without a stack of Java's and without settings."""
        scheme = self.path.partition("://")[0].lower()
        thrown = getattr(error, "java_exception", None)
        text = str(thrown.toString() if thrown is not None else error)
        if any(each in text for each in ("No FileSystem for scheme", "ClassNotFound", "NoClassDefFound")):
            version = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
            package = PACKAGES.get(scheme, "the package of its file system").format(version)
            hint = f"--conf spark.jars.packages={package}, or conf={{'spark.jars.packages': '{package}'}} of connect"
            return SourceError(f"Spark has no file system for {scheme}:// here", hint=hint)
        line = re.sub(r"^[\w.$]+(?:Exception|Error): ", "", text.split("\n", 1)[0])
        hint = f"keys and endpoints are settings of Spark's, spark.hadoop.fs.{scheme}.*, or in the environment"
        return SourceError(f"{self.path} cannot be read: {line[:500]}", hint=hint)


class _Object(io.RawIOBase):
    """The bytes of a file of a store, for whoever wants a few of them."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._store, self._name, self._size, self._at = store, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        found = self._store.bytes(self._name, self._at, wanted) if wanted > 0 else b""
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


class Objects:
    """The files of a store, as a `Listing`: the store is asked for all of them, and says how each is."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._settled: dict[str, File] = {}

    def is_due(self) -> bool:
        return True

    def may_look(self) -> bool:
        return True

    def look(self, *, complete: bool) -> list[File]:
        return [file for file in self.store.list() if self._settled.get(file.name) != file]

    def settle(self, file: File) -> None:
        self._settled[file.name] = file


def _file(status: str) -> File | None:
    """A file, as Hadoop writes its status.

    >>> _file("S3AFileStatus{path=s3a://b/in/a.csv; isDirectory=false; length=4; modification_time=7; owner=me}")
    File(name='s3a://b/in/a.csv', size=4, time=7000000)
    """
    found = _STATUS.match(status)
    if found is None or found.group(2) == "true" or not is_shown(found.group(1).rpartition("/")[2]):
        return None
    return File(found.group(1), int(found.group(3)), int(found.group(4)) * 1_000_000)
