"""The SQL front end: text to statements, and what can be said about a script without Spark."""

from __future__ import annotations


def check(text: str) -> list[str]:
    """Parse a script and bind its names without starting anything; gives warnings, raises what is wrong.

    >>> check("CREATE STREAM s (a INT); SELECT b FROM s")
    Traceback (most recent call last):
    ...
    anabranch.errors.UnknownName: there is no column b
      line 1: CREATE STREAM s (a INT); SELECT b FROM s
                                              ^
      there is: a
    """
    from anabranch.sql.checking import check_script

    return check_script(text)
