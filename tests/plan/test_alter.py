"""What two plans of a view have in common, found without Spark: fingerprints, matching nodes, the three lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.algebra.reach import JoinBand
from anabranch.algebra.triggers import Triggers
from anabranch.plan.alter import Comparison, beginnings, compare, fingerprint, lists, missing
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.placer import Planned
from anabranch.plan.states import BlockUse, Key, Panes, PartialColumn
from anabranch.plan.stored import to_json
from anabranch.plan.view import (
    Beginning,
    JoinInput,
    JointProgress,
    NodeEmission,
    NodeJoin,
    NodeKeys,
    NodeProgress,
    NodeQuery,
    Touch,
    View,
)
from anabranch.types import Field

STREAM = Stream("s", "s", "", (Field("k", "string"),), None, None, None, None, None, {}, "all", False, 0)
COLUMNS = tuple(
    PartialColumn(name, f"{name}(n)", "sum({c})", True, None, "bigint", 0) for name in ("count", "sum", "max")
)
PANES = Panes("p", "s", "s|k", "`@stream`", {}, (Key("k", "k", "string"),), None, 0, 0, COLUMNS, (None,))
FIELDS = (Field("k", "string"), Field("n", "bigint"))


def node(id: str, *, place: str = "@p:0", columns: tuple[str, ...] = ("count", "sum"), text: str = "") -> View:
    """A group over partials."""
    text = text or f"SELECT k, sum(`sum`) AS n FROM `{place}` GROUP BY k"
    use = BlockUse(place, "p", None, "count", columns)
    touch = Touch(place, f"SELECT DISTINCT k AS `k0` FROM `{place}`")
    return View(
        id, f"v/{id[-1]}", "SELECT k, sum(n) AS n FROM s GROUP BY k", "v", FIELDS, "keyed", NodeQuery(text, (use,)),
        NodeKeys(FIELDS[:1], (touch,)), emission=NodeEmission("feed"), beginning=Beginning("beginning"),
    )  # fmt: skip


def above(below: View, text: str = "SELECT max(n) AS m FROM {}") -> View:
    placeholder = f"@v:{below.id}"
    query = NodeQuery(text.format(f"`{placeholder}`"), views={placeholder: below.id})
    return View(
        "v", "v", "", None, (Field("m", "bigint"),), "whole", query, emission=NodeEmission("feed"),
        beginning=Beginning("beginning"),
    )  # fmt: skip


def compared(old: View, new: View, old_node: View, new_node: View) -> tuple[Catalog, Comparison]:
    catalog = Catalog({each.id: to_json(each) for each in (STREAM, PANES, old_node, old)})
    return catalog, compare(catalog, catalog.view("v"), Planned(new, (PANES, new_node), {}, (), ()))


def test_a_fingerprint_minds_meaning_and_not_names() -> None:
    states = {"p": PANES}
    one = fingerprint(node("v_1"), states, {})
    assert fingerprint(node("v_7", place="@p:3"), states, {}) == one
    spaced = "SELECT k,  sum(`sum`) AS n /* all */ FROM `@p:0`\nGROUP  BY k"
    assert fingerprint(node("v_1", text=spaced.replace("SELECT", "select")), states, {}) == one
    for other in (
        node("v_1", columns=("count", "max")),
        node("v_1", text="SELECT k, sum(`sum`) + 1 AS n FROM `@p:0` GROUP BY k"),
        replace(node("v_1"), fields=(FIELDS[0], Field("n", "int"))),
        replace(node("v_1"), emission=NodeEmission("feed", "drop")),
        replace(node("v_1"), emission=NodeEmission("triggers", triggers=Triggers(counting=2))),
        replace(node("v_1"), beginning=Beginning("beginning", table_versions={"t": (3, 1)})),
    ):
        assert fingerprint(other, states, {}) != one
    later = {"p": replace(PANES, columns=tuple(replace(each, since=2) for each in COLUMNS))}
    assert fingerprint(node("v_1"), later, {}) != one


def test_static_tables_count_by_what_is_in_them() -> None:
    def at(version: int, own: int) -> str:
        view = node("v_1").with_table_versions({"t": (version, own)})
        return fingerprint(view, {"p": PANES}, {})

    assert at(3, 1) == at(9, 1) != at(9, 2)


def test_a_string_that_looks_like_a_placeholder_is_a_string() -> None:
    below = node("v_1")
    plain = above(below, "SELECT max(n) AS m, '`@v:v_1`' AS t FROM {}")
    _, found = compared(
        plain, replace(above(node("v_2"), "SELECT max(n) AS m, '`@v:v_1`' AS t FROM {}")), below, node("v_2")
    )
    assert found.same
    assert found.view.query.text == plain.query.text


def test_an_equal_node_is_gone_on_with_under_its_old_id() -> None:
    old, new = node("v_1"), node("v_2", place="@p:5")
    catalog, found = compared(above(old), above(new, "SELECT min(n) AS m FROM {}"), old, new)
    assert found.kept == (catalog.view("v_1"),)
    assert (found.made, found.gone, found.same) == ((), (), False)
    assert found.view.query.text == "SELECT min(n) AS m FROM `@v:v_1`"
    assert found.view.query.views == {"@v:v_1": "v_1"}
    assert lists(catalog, found, lambda _: None).lines() == [
        "kept: partials p (count, sum)",
        "kept: node v/1 (SELECT k, sum(n) AS n FROM s GROUP BY k)",
        "rebuilt: changes of v, with the difference between the old and the new answer",
        "refused: nothing",
    ]


def test_what_bounds_a_join_follows_the_nodes_it_goes_on_with() -> None:
    old, new = node("v_1"), node("v_2")
    twice = "SELECT x.n AS m FROM {} AS x JOIN `@v:v_2#1` AS y ON x.k = y.k"
    names = ("@v:v_2", "@v:v_2#1")
    upper = above(new, twice)
    inputs = (JoinInput(names[0], "x", "ts"), JoinInput(names[1], "y", "ts"))
    joined = replace(
        upper,
        operator="join",
        query=replace(upper.query, views=dict.fromkeys(names, "v_2")),
        join=NodeJoin((JoinBand(*names, -1, 2),), inputs=inputs, views=dict.fromkeys(names, "v_2")),
        progress=NodeProgress(joint=JointProgress(names, {}, {})),
    )
    _, found = compared(above(old), joined, old, new)
    first, second = "@v:v_1", "@v:v_1#1"
    assert found.view.query.views == found.view.join.views == found.view.join_sources == {first: "v_1", second: "v_1"}
    assert found.view.join.bands == (JoinBand(first, second, -1, 2),)
    assert found.view.progress.joint is not None and found.view.progress.joint.inputs == (first, second)
    assert [each.input for each in found.view.join.inputs] == [first, second]
    assert found.view.in_time
    assert found.view.query.text == "SELECT x.n AS m FROM `@v:v_1` AS x JOIN `@v:v_1#1` AS y ON x.k = y.k"


def test_the_same_plan_is_the_same() -> None:
    old, new = node("v_1"), node("v_2")
    _, found = compared(above(old), above(new), old, new)
    assert found.same


def test_another_node_is_made_and_the_old_one_goes() -> None:
    old, new = node("v_1"), node("v_1_2", columns=("count", "max"))
    catalog, found = compared(above(old), above(new), old, new)
    assert [each.name for each in found.made] == ["v/2"]
    assert found.gone == (catalog.view("v_1"),)
    assert not found.same


def test_new_columns_are_refused_where_rows_are_gone() -> None:
    old, new = node("v_1"), node("v_2", columns=("count", "max"))
    catalog = Catalog({each.id: to_json(each) for each in (STREAM, PANES, old, above(old))})
    found = compare(catalog, catalog.view("v"), Planned(above(new), (PANES, new), {"p": ("max",)}, (), ()))
    said = lists(catalog, found, lambda stream: f"stream {stream.name} keeps no rows of the past")
    assert said.kept == ("partials p (count)",)
    assert said.refused == ("partials p (max): stream s keeps no rows of the past",)
    assert lists(catalog, found, lambda _: None).rebuilt[0] == "partials p (max), from the rows of s"


@pytest.mark.parametrize(
    ("source", "kept_since", "runs", "since", "words"),
    [
        (None, 0, 5, 0, None),
        (None, None, 0, 0, None),
        (None, None, 5, 5, None),
        (None, None, 5, 0, "keeps no rows of the past"),
        (None, 3, 5, 0, "from run 3 on"),
        (None, 0, 5, 3, "starts with run 3"),
        ("files", None, 5, 0, None),
        ("files", None, 5, 3, None),
    ],
)
def test_which_rows_can_be_had_again(
    source: str | None, kept_since: int | None, runs: int, since: int, words: str | None
) -> None:
    reason = missing(replace(STREAM, source=source, kept_since=kept_since), runs, since)
    assert reason is None if words is None else reason is not None and words in reason


def test_a_view_begins_where_its_columns_do() -> None:
    panes = replace(PANES, columns=tuple(replace(each, since=4) for each in COLUMNS))
    catalog = Catalog({each.id: to_json(each) for each in (STREAM, panes, node("v_1"), above(node("v_1")))})
    assert beginnings(catalog, catalog.view("v")) == {"s": 4}
