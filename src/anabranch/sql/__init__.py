"""The SQL front end: text to statements, and checks of a script without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.errors import AnabranchError


def check(text: str) -> list[str]:
    """Parse a script and bind its names without Spark; returns warnings, raises the first problem.

    >>> check("CREATE STREAM s (a INT); SELECT b FROM s")
    Traceback (most recent call last):
    ...
    anabranch.errors.UnknownName: there is no column b
      line 1: CREATE STREAM s (a INT); SELECT b FROM s
                                              ^
      there is: a
    """
    wrong, warnings = problems(text)
    if wrong:
        raise wrong[0]
    return warnings


def problems(text: str) -> tuple[list[AnabranchError], list[str]]:
    """All errors of a script, in text order, and the warnings."""
    from anabranch.sql.checking import check_script

    return check_script(text)
