"""The driver's DuckDB: a connection for each thread, and writing files of the ledger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.bucket import COPY_OPTIONS
from anabranch.duck import connect, counting_all, quoted_text
from anabranch.engine.core import Core
from anabranch.engine.writing import footer_range
from anabranch.ledger import DataFile
from anabranch.ledger.arrivals import Written
from anabranch.ledger.crash import reach

if TYPE_CHECKING:
    import duckdb

_connections = threading.local()


def connection() -> duckdb.DuckDBPyConnection:
    """The DuckDB of this thread."""
    duck: Any = getattr(_connections, "duck", None)
    if duck is None:
        duck = _connections.duck = connect()
    return duck  # type: ignore[no-any-return]


def copy_to_table(
    core: Core, duck: duckdb.DuckDBPyConnection, text: str, table_id: str, time: str | None
) -> tuple[DataFile, ...]:
    """Write the result of a DuckDB query as files of a table."""
    import duckdb

    def write(path: Path) -> Written:
        try:
            with counting_all(text):
                done = duck.execute(f"COPY ({text}) TO {quoted_text(str(path))} ({COPY_OPTIONS})").fetchone()
        except duckdb.IOException as error:
            raise OSError((str(error).splitlines() or [""])[0]) from error
        assert done is not None
        low, high = footer_range(path, time) if time is not None and done[0] else (None, None)
        return done[0], low, high

    file = core.ledger.write(table_id, write)
    reach("after-adopt")
    if file.rows:
        return (file,)
    core.ledger.discard(table_id, file)
    return ()
