"""Streaming SQL on Spark whose answers are those of a batch query, in whatever order rows arrive.

    import anabranch
    with anabranch.connect() as ab:
        ab.sql("SELECT 1 AS one").toPandas()

Names are looked up on first use, so that importing the package costs next to nothing: help, versions and
syntax errors must not wait for Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.errors import (
        AnabranchError,
        EnvironmentProblem,
        HomeInUse,
        LedgerError,
        NotSupported,
        QueryFailed,
        SourceError,
        SqlError,
        SyntaxProblem,
        UnknownName,
        UsageError,
        WrongType,
    )
    from anabranch.session import Result, Session, connect
    from anabranch.sources.capture_function import capture
    from anabranch.sources.registry import Kind, Option, register_source

__version__ = "0.1.0"

__all__ = [
    "AnabranchError",
    "EnvironmentProblem",
    "HomeInUse",
    "Kind",
    "LedgerError",
    "NotSupported",
    "Option",
    "QueryFailed",
    "Result",
    "Session",
    "SourceError",
    "SqlError",
    "SyntaxProblem",
    "UnknownName",
    "UsageError",
    "WrongType",
    "__version__",
    "capture",
    "connect",
    "register_source",
]

_MODULES = {
    "capture": "anabranch.sources.capture_function",
    **dict.fromkeys(("Result", "Session", "connect"), "anabranch.session"),
    **dict.fromkeys(("Kind", "Option", "register_source"), "anabranch.sources.registry"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES.get(name, "anabranch.errors"))
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
