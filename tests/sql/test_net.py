"""NET, the rows that are there of a stream of changes: how it is read, and what is said of what is wrong with it."""

from __future__ import annotations

import pytest

from anabranch.errors import SyntaxProblem
from anabranch.sql.parser import parse


@pytest.mark.parametrize(
    ("written", "message", "marked"),
    [
        ("NET(s)", "NET takes a relation, and a count", "NET(s)"),
        ("NET(s, n, m)", "NET takes a relation, and a count", "NET(s, n, m)"),
        ("NET()", "NET takes a relation, and a count", "NET()"),
        ("NET(s, 1)", "no column here says which rows are retracted", "1"),
        ("NET(s, CAST(NULL AS INT))", "no column here says which rows are retracted", "CAST(NULL AS INT)"),
    ],
)
def test_what_is_wrong_is_shown_where_it_stands(written: str, message: str, marked: str) -> None:
    text = f"SELECT k FROM {written}"
    with pytest.raises(SyntaxProblem, match=message) as raised:
        parse(text)
    assert (raised.value.start, raised.value.end) == (text.index(marked), text.index(marked) + len(marked))
    assert raised.value.hint is not None
    assert "NET(orders, diff)" in raised.value.hint
