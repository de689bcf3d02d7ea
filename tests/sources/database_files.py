"""Database files of SQLite and DuckDB, with the methods that tests have of servers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb


@dataclass(frozen=True)
class DatabaseFile:
    kind: str
    path: Path

    def connect(self) -> Any:
        return closing(
            sqlite3.connect(self.path, isolation_level=None) if self.kind == "sqlite" else duckdb.connect(self.path)
        )

    def run(self, *statements: str) -> None:
        with self.connect() as database:
            for statement in statements:
                database.execute(statement)

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.connect() as database:
            database.execute("BEGIN")
            for row in rows:
                database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
            database.execute("COMMIT")

    def options(self, **own: Any) -> dict[str, Any]:
        return {"path": str(self.path), **own}

    def source(self, **own: str) -> str:
        return f"{self.kind}({', '.join(f'{name} => {value!r}' for name, value in self.options(**own).items())})"
