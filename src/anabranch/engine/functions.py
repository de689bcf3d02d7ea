"""Python functions of a home: stored by name, imported when Spark first needs one.

Opening a home imports nothing. A function is found on the user's Python path, never loaded from the home.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from anabranch.engine.core import Core
from anabranch.engine.frames import translate
from anabranch.errors import AnabranchError, SqlError, UnknownFunction, did_you_mean
from anabranch.ledger import Draft
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Function
from anabranch.plan.stored import to_json
from anabranch.plan.view import View
from anabranch.sql.functions import builtin, called
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import CreateFunction, Drop

_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_TYPES: dict[Any, str] = {
    int: "bigint", float: "double", str: "string", bool: "boolean", bytes: "binary", datetime: "timestamp",
    date: "date", timedelta: "interval day to second", Decimal: "decimal(38,18)",
}  # fmt: skip


class Functions:
    """The functions of one open home, and which of them are registered with Spark."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._registered: dict[str, Function] = {}

    # ---- statements

    def create(self, statement: CreateFunction, *, again_is_fine: bool) -> str:
        name = statement.name.last
        catalog = self.core.catalog()
        found = catalog.function(name)
        if found is not None:
            same = normal_form(found.sql) == statement.normal
            if statement.if_not_exists or (again_is_fine and same):
                return f"function {name} already exists"
            if not statement.or_replace:
                hint = f"CREATE OR REPLACE FUNCTION {name} replaces it"
                raise self._wrong(statement, f"function {found.name} already exists", hint)
            self._must_be_unused(statement, catalog, found)
        if len(statement.name.parts) > 1 or not name.isidentifier() or name.startswith("_"):
            raise self._wrong(statement, f"{statement.name} cannot be the name of a function", "use one plain word")
        if name.lower() in builtin():
            raise self._wrong(statement, f"{name} is a built-in function of Spark", "take another name")
        try:
            returns = statement.returns or _returns(_imported(statement.reference))
        except AnabranchError as error:
            span = statement.reference_span
            raise SqlError(
                error.message, text=statement.text, start=span.start, end=span.end, hint=error.hint
            ) from error
        made = Function(f"function.{name.lower()}", name, statement.sql, statement.reference, returns)
        self._unregister(name)
        self._register(made)  # Spark parses the type, and raises an error for a wrong one
        with self.core.ledger.commit_lock:
            self.core.ledger.commit(Draft("create", catalog={made.id: to_json(made)}))
        return f"function {name} created"

    def drop(self, statement: Drop) -> str:
        catalog = self.core.catalog()
        found = catalog.function(statement.name.last)
        if found is None:
            if statement.if_exists:
                return f"there is no function {statement.name}"
            names = [each.name for each in catalog.of(Function)]
            raise self._wrong(
                statement, f"there is no function {statement.name}", did_you_mean(str(statement.name), names)
            )
        self._must_be_unused(statement, catalog, found)
        self._unregister(found.name)
        with self.core.ledger.commit_lock:
            self.core.ledger.commit(Draft("drop", catalog={found.id: None}))
        return f"function {found.name} dropped"

    def _must_be_unused(self, statement: CreateFunction | Drop, catalog: Catalog, found: Function) -> None:
        users = [view.name for view in catalog.of(View) if view.owner is None and called(view.sql, found.name)]
        if users:
            hint = "drop them first: their state was computed with it"
            raise self._wrong(statement, f"{found.name} is called by {', '.join(users)}", hint)

    def _wrong(self, statement: CreateFunction | Drop, message: str, hint: str | None) -> SqlError:
        span = statement.name.span
        return SqlError(message, text=statement.text, start=span.start, end=span.end, hint=hint)

    # ---- calls

    def provide(self, name: str) -> bool:
        """Register a function that Spark lacks; False if the home has none, or Spark has it already."""
        found = self.core.catalog().function(name)
        if found is None or self._registered.get(name.lower()) == found:
            return False
        self._register(found)
        return True

    def provide_for(self, catalog: Catalog, stream_id: str) -> None:
        """Register the functions that views on a stream call: some expressions are not run as SQL text, and so do not
        fail in a way that `provide` could handle."""
        for function in catalog.of(Function):
            if self._registered.get(function.name.lower()) != function and users(catalog, stream_id, function.name):
                self._register(function)

    def settle(self) -> None:
        """Unregister functions that another process has dropped or replaced."""
        catalog = self.core.catalog() if self._registered else None
        for name, given in list(self._registered.items()):
            if catalog is not None and catalog.function(name) != given:
                self._unregister(name)

    def _register(self, function: Function) -> None:
        try:
            found = _imported(function.reference)
        except AnabranchError as error:
            users = [view.name for view in self.core.catalog().of(View) if called(view.sql, function.name)]
            called_by = f", which {', '.join(users)} calls," if users else ""
            raise AnabranchError(
                f"the function {function.name} of this home{called_by} cannot be loaded: {error.message}",
                hint=error.hint,
            ) from error
        try:
            if function.returns is None:
                self.core.spark.udf.register(function.name, found)
            else:
                self.core.spark.udf.register(function.name, _by_name(function.reference), function.returns)
        except Exception as error:
            raise translate(error) from error
        self._registered[function.name.lower()] = function

    def _unregister(self, name: str) -> None:
        if self._registered.pop(name.lower(), None) is not None:
            self.core.spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{name}`")


def users(catalog: Catalog, stream_id: str, function: str) -> list[str]:
    """The views on a stream that call a function."""
    return [
        view.name
        for view in catalog.of(View)
        if view.owner is None and stream_id in catalog.sources_of(view) and called(view.sql, function)
    ]


def named(catalog: Catalog, stream_id: str, error: Exception) -> Exception:
    """The error of a run that lacks a function, with the views that call it: the sender of the rows may not know
    them."""
    if not isinstance(error, UnknownFunction):
        return error
    views = ", ".join(users(catalog, stream_id, error.function)) or "a view"
    name = error.function
    return UnknownFunction(
        f"{views} calls the function {name}, which this process does not have: nothing of this run was taken in",
        hint=f"CREATE FUNCTION {name} AS 'package.module.function' gives it to every process that can import it,"
        f" ab.spark.udf.register('{name}', ...) to this one; a session with read_only=True reads the other views",
    )


def _imported(reference: str) -> Any:
    """A Python function by its qualified name."""
    if not _REFERENCE.fullmatch(reference):
        raise AnabranchError(
            f"{reference!r} does not name a Python function", hint="write it as 'package.module.function'"
        )
    module, _, name = reference.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise AnabranchError(f"the module {module} has no {name}", hint="check its name") from error
    except Exception as error:
        raise AnabranchError(
            f"{module} cannot be imported: {error}",
            hint="the module has to be on the Python path of every process that calls the function",
        ) from error
    if not callable(found):
        raise AnabranchError(f"{reference} is not a function", hint="name one")
    return found


def _returns(function: Any) -> str | None:
    """The Spark type that a function returns, by its annotation; None for a function made with Spark's `udf`."""
    if hasattr(function, "returnType") and hasattr(function, "evalType"):
        return None
    try:
        hint = typing.get_type_hints(function).get("return")
    except Exception:
        hint = None
    found = _type(hint)
    if found is None:
        raise AnabranchError(
            "the return type is not known: the function has no annotation for which Spark has a type",
            hint="declare it with RETURNS, as in CREATE FUNCTION f AS 'package.module.function' RETURNS BIGINT",
        )
    return found


def _type(hint: Any) -> str | None:
    """
    >>> _type(int | None), _type(dict[str, list[float]]), _type(object)
    ('bigint', 'map<string,array<double>>', None)
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        rest = [each for each in arguments if each is not type(None)]
        return _type(rest[0]) if len(rest) == 1 else None
    if origin in (list, dict):
        inner = [_type(each) for each in arguments]
        if None in inner:
            return None
        return f"{'array' if origin is list else 'map'}<{','.join(map(str, inner))}>"
    return _TYPES.get(hint)


def _by_name(reference: str) -> Callable[..., Any]:
    """The function for Spark's workers, which import it themselves, with the Python path of this process."""
    path = list(sys.path)
    found: list[Callable[..., Any]] = []

    def call(*values: Any) -> Any:
        if not found:
            import importlib
            import sys

            sys.path.extend(each for each in path if each not in sys.path)
            module, _, name = reference.rpartition(".")
            found.append(getattr(importlib.import_module(module), name))
        return found[0](*values)

    return call
