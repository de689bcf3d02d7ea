"""NET, the rows that are there of a stream of changes: how it is read, and what is said of what is wrong with it."""

from __future__ import annotations

import pytest

from anabranch.errors import SyntaxProblem
from anabranch.sql.parser import parse


def canonical(text: str) -> str:
    (statement,) = parse(text)
    return statement.sql


def there(relation: str, columns: str, count: str) -> str:
    return (
        f"(SELECT * EXCEPT (__net, __copy) FROM (SELECT * EXCEPT ({columns}), sum({count}) AS __net FROM {relation}"
        " GROUP BY ALL) LATERAL VIEW explode(sequence(1, __net)) __copies AS __copy WHERE __net > 0)"
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("NET(s, n)", f"{there('s', '`n`', 'n')} AS `s`"),
        ("net(TABLE s, s.n) WHERE s.k = 1", f"{there('s', '`n`', 's.n')} AS `s` WHERE s.k = 1"),
        ("NET(TABLE(s), n) AS t", f"{there('s', '`n`', 'n')} AS t"),
        ("NET(s, `in`) t", f"{there('s', '`in`', '`in`')} t"),
        ("NET((SELECT k, n FROM s), n) t", f"{there('(SELECT k, n FROM s)', '`n`', 'n')} t"),
        (
            "NET(s, CASE WHEN op IN ('d', 'x') OR gone IS NOT NULL THEN CAST(-1 AS INT) ELSE 1 END)",
            there("s", "`op`, `gone`", "CASE WHEN op IN ('d', 'x') OR gone IS NOT NULL THEN CAST(-1 AS INT) ELSE 1 END")
            + " AS `s`",
        ),
        ("NET(s, after.n)", f"{there('s', '`after`', 'after.n')} AS `s`"),
        (
            "a LEFT JOIN NET(s, n) ON a.k = s.k, NET(t, m)",
            f"a LEFT JOIN {there('s', '`n`', 'n')} AS `s` ON a.k = s.k, {there('t', '`m`', 'm')} AS `t`",
        ),
        (
            "TUMBLE(TABLE NET(s, n), DESCRIPTOR(ts), INTERVAL 1 MINUTE)",
            f"TUMBLE(TABLE {there('s', '`n`', 'n')}, DESCRIPTOR(ts), INTERVAL 1 MINUTE)",
        ),
        (
            "TUMBLE(NET(s, n), ts, INTERVAL 1 MINUTE) w",
            f"TUMBLE({there('s', '`n`', 'n')}, ts, INTERVAL 1 MINUTE) w",
        ),
        ("NET(NET(s, n), m) t", f"{there(there('s', '`n`', 'n') + ' AS `s`', '`m`', 'm')} t"),
        (
            "NET((SELECT * FROM NET(s, n)), m) t",
            f"{there('(SELECT * FROM ' + there('s', '`n`', 'n') + ' AS `s`)', '`m`', 'm')} t",
        ),
        # A table, a column and a function of this name stay what they are.
        ("net", "net"),
        ("net WHERE net(k, 1) > 0 AND net.k IN (1, net(k, 2))", "net WHERE net(k, 1) > 0 AND net.k IN (1, net(k, 2))"),
    ],
)
def test_it_is_read_as_a_query(written: str, read: str) -> None:
    assert canonical(f"SELECT * FROM {written}") == f"SELECT * FROM {read}"


@pytest.mark.parametrize(
    ("written", "message", "marked"),
    [
        ("NET(s)", "NET takes a relation, and what says how often", "NET(s)"),
        ("NET(s, n, m)", "NET takes a relation, and what says how often", "NET(s, n, m)"),
        ("NET()", "NET takes a relation, and what says how often", "NET()"),
        ("NET(s, 1)", "no column says here which rows are taken back", "1"),
        ("NET(s, CAST(NULL AS INT))", "no column says here which rows are taken back", "CAST(NULL AS INT)"),
    ],
)
def test_what_is_wrong_is_shown_where_it_stands(written: str, message: str, marked: str) -> None:
    text = f"SELECT k FROM {written}"
    with pytest.raises(SyntaxProblem, match=message) as raised:
        parse(text)
    assert (raised.value.start, raised.value.end) == (text.index(marked), text.index(marked) + len(marked))
    assert raised.value.hint is not None
    assert "NET(orders, diff)" in raised.value.hint
