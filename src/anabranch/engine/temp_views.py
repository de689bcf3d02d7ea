"""Temporary views of the user's own Spark session, which one-off queries can read by name.

The home's streams, tables and views come first. What stays (a view, a table made by a query) cannot read them, for they
end with their session.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.engine.core import Core
from anabranch.engine.insertion import bring
from anabranch.errors import NotSupported
from anabranch.ledger import Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.sql.syntax import Name, Query
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def catalog_for(core: Core, query: Query, snapshot: Snapshot | None = None) -> Catalog:
    """The catalog with the temporary views that a query names."""
    catalog = core.catalog(snapshot)
    named = _named(core, query, catalog)
    return catalog.with_temporary(name.last.lower() for name in named) if named else catalog


def refuse(core: Core, text: str, query: Query, what: str) -> None:
    """Refuse a query that reads a temporary view."""
    for name in _named(core, query, core.catalog()):
        raise NotSupported(
            f"{name} is a temporary view of the Spark session and ends with it: {what} cannot read it",
            text=text,
            at=name.span,
            hint=f"INSERT INTO a stream or table SELECT ... FROM {name}, and read that",
        )


def frame(core: Core, name: str) -> DataFrame:
    """The rows of a temporary view."""
    session = next(each for each in _sessions(core) if name in _views(each))
    return bring(core, session.table(quote_name(name)))


def _named(core: Core, query: Query, catalog: Catalog) -> list[Name]:
    """The names in a query that resolve only to temporary views."""
    ctes = {name.lower() for each in query.queries() for name, _ in each.ctes}
    unknown = [
        relation.name
        for relation in query.relations()
        if relation.kind == "name" and relation.name is not None and len(relation.name.parts) == 1
        and relation.name.last.lower() not in ctes and catalog.find(relation.name.last) is None
    ]  # fmt: skip
    views = {view for session in _sessions(core) for view in _views(session)} if unknown else set()
    return [name for name in unknown if name.last.lower() in views]


def _sessions(core: Core) -> Iterator[SparkSession]:
    """The sessions in which the user may have views: theirs, and ours. Does not start Spark."""
    if core.given is not None:
        yield core.given
    if core.started:
        yield core.spark
    elif "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            yield active


def _views(session: SparkSession) -> set[str]:
    return {row["viewName"].lower() for row in session.sql("SHOW VIEWS").collect() if row["isTemporary"]}
