"""Rules: what each makes of a query. Files of pairs, one file a rule: a query, and behind => the query after the rule.
Where there is none, the rule does not apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.rules import order
from anabranch.plan.rules.order import COUNTING_RULES
from anabranch.plan.stored import to_json
from anabranch.plan.view import Beginning, NodeEmission, NodeQuery, View
from anabranch.sql.splice import Spliced
from anabranch.types import Field
from ir.plan_help import Untyped
from plan.rule_help import normalized

RULES = {
    rule.__name__: rule
    for rules in (order.RULES, order.READ_RULES, order.KEY_RULES, order.RECORD_RULES, order.COUNTING_RULES)
    for rule in rules
}
S = (Field("k", "string"), Field("n", "int"), Field("m", "int"), Field("day", "int"), Field("ts", "timestamp"))
R = (Field("k", "string"), Field("p", "int"), Field("id", "bigint"), Field("rts", "timestamp"))
T = (Field("k", "string"), Field("label", "string"))
U = (Field("k", "string"), Field("y", "int"))


def stream(name: str, fields: tuple[Field, ...]) -> Stream:
    return Stream(name, name, "", fields, fields[-1].name, None, None, None, None, {}, "all", False, 0)


def view(name: str, query: str, fields: tuple[Field, ...], start: str = "beginning") -> View:
    return View(
        name, name, query, None, fields, "", NodeQuery("", streams={"@s:s": "s"}), emission=NodeEmission("feed"),
        beginning=Beginning(start),
    )  # fmt: skip


CATALOG = Catalog(
    {
        each.id: to_json(each)
        for each in (
            stream("s", S),
            stream("r", R),
            Table("t", "t", "", T, None, {}, None),
            Table("u", "u", "", U, None, {}, None),
            view("v", "SELECT k, n FROM s", S[:2]),
            view("rows", "SELECT k, n FROM s WHERE n > 0 ORDER BY n EMIT CHANGES", S[:2]),
            view("newer", "SELECT k, n FROM s", S[:2], "now"),
            view("counts", "SELECT k, count(*) AS c FROM s GROUP BY k EMIT CHANGES", S[:2]),
            view("pairs", "SELECT s.k, r.p FROM s JOIN r ON s.k = r.k", R[:2]),
        )
    }
)


def analyze(text: str, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
    """Whatever is computed is an INT."""
    return [Field(field.name, "int") for field in Untyped().analyze(Spliced(text, ()), schemas)]


def pairs() -> list[tuple[str, str, str]]:
    found = []
    for path in sorted((Path(__file__).parent / "rules").glob("*.sql")):
        blocks = [each for each in path.read_text().split("\n\n") if not each.startswith("--")]
        for block in blocks:
            query, _, wanted = block.strip().partition("\n=>")
            found.append((path.stem, query, wanted.strip() or query))
    return found


@pytest.mark.parametrize(("rule", "query", "wanted"), pairs())
def test_a_rule_gives_the_query_that_it_should(rule: str, query: str, wanted: str) -> None:
    made = normalized(query, CATALOG, analyze, (RULES[rule],))
    assert made.text == wanted if wanted != query else not made.changed


def test_every_rule_has_its_pairs() -> None:
    assert {rule for rule, _, _ in pairs()} == RULES.keys()


def test_views_whose_queries_become_part_of_another_are_named() -> None:
    query = "SELECT p.k, count(*) AS n FROM pairs AS p JOIN v ON p.k = v.k GROUP BY p.k TRIGGER COUNTING 3"
    made = normalized(query, CATALOG, analyze, COUNTING_RULES)
    assert made.included == ("pairs", "v")
