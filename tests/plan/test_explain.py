"""EXPLAIN: what is said about each node of a plan, in words, as JSON and as a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import count

import pytest
import sqlglot
from sqlglot.optimizer.qualify import qualify

from anabranch.algebra.progress import Computed, Delay, Lagging, Percentile, Punctuation
from anabranch.algebra.windows import SlidingWindows
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.describe import NodeStatistics, PlanNode, progress_rule
from anabranch.plan.explain import Explanation, explain_query, explain_rules, explain_view
from anabranch.plan.placer import PlanningContext
from anabranch.plan.planner import plan
from anabranch.plan.query_ties import break_query_ties
from anabranch.plan.render import SUBSCRIBED, rendered
from anabranch.plan.stored import to_json
from anabranch.plan.strategy import Load
from anabranch.plan.view import View
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateView, Explain, SelectStatement
from anabranch.testing import Harness
from anabranch.types import Field

WINDOW = "window_start, window_end"
TUMBLE = f"SELECT {WINDOW}, k, sum(n) AS n FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY {WINDOW}, k"
FIELDS = (Field("k", "string"), Field("n", "bigint"), Field("ts", "timestamp"))


def stream(name: str, **others: object) -> Stream:
    values: dict[str, object] = {
        "id": name, "name": name, "sql": "", "fields": FIELDS, "time": "ts", "rule": Delay(5_000_000), "idle": None,
        "ahead": None, "source": None, "options": {}, "keep": "all", "fail_on_bad": False, "kept_since": 0,
    }  # fmt: skip
    return Stream(**{**values, **others})  # type: ignore[arg-type]


def analyze(text: str, schemas: Mapping[str, Iterable[Field]]) -> list[Field]:
    """The columns of a query as Spark's analyser would name them; their types matter to no test here."""
    query = sqlglot.parse_one(text, dialect="spark")
    while isinstance(query, sqlglot.exp.SetOperation):
        query = query.left
    whole = re.fullmatch(r"SELECT \* FROM `([^`]+)`", query.sql(dialect="spark"))
    if whole is not None:
        return list(schemas[whole[1]])
    if query.is_star:
        known = {name: {field.name: field.type for field in fields} for name, fields in schemas.items()}
        query = qualify(query, schema=known, dialect="spark", validate_qualify_columns=False)
    types = {field.name: field.type for fields in schemas.values() for field in fields}
    names = [each.output_name or each.sql() for each in query.selects]
    return [Field(name, types.get(name, "bigint")) for name in names]


class World:
    """A catalog and the views that were made in it, without an engine."""

    def __init__(self) -> None:
        names = Table("names", "names", "", (Field("k", "string"), Field("label", "string")), None, {}, None)
        self.catalog = Catalog({each.id: to_json(each) for each in (stream("s"), stream("r"), names)})
        numbers = count()
        self.loads: dict[str, Load] = {}
        self.planning = PlanningContext(
            analyze,
            lambda _: 0,
            lambda _: False,
            lambda _: (1, 1),
            lambda name: f"{name}_{next(numbers)}",
            self.loads.get,
        )

    def make(self, sql: str) -> View:
        (statement,) = parse(sql)
        assert isinstance(statement, CreateView)
        planned = plan(
            id=statement.name.last, name=statement.name.last, text=sql, sql=sql, query=statement.query,
            start="beginning", fields=self.fields(sql), catalog=self.catalog, planning=self.planning,
        )  # fmt: skip
        self.catalog = self.catalog.with_objects((*planned.objects, planned.view))
        return planned.view

    def fields(self, sql: str) -> tuple[Field, ...]:
        from anabranch.plan.bind import Binder

        (statement,) = parse(sql)
        assert isinstance(statement, CreateView | SelectStatement)
        bound = Binder(statement.text, self.catalog, statement.query).bind()
        schemas = {}
        for placeholder, reference in bound.references.items():
            found = self.catalog[reference.target]
            assert isinstance(found, Stream | Table | View)
            schemas[placeholder] = found.fields
        text = break_query_ties(bound, schemas.__getitem__, lambda asked, known: analyze(asked.text, known))
        return tuple(analyze(text.text, schemas))

    def explain(self, sql: str) -> Explanation:
        (statement,) = parse(sql)
        assert isinstance(statement, SelectStatement)
        return explain_query(statement.text, statement.query, self.catalog, self.planning, self.fields(sql))

    def nodes(self, sql: str) -> dict[str, PlanNode]:
        return {node.name: node for node in self.explain(sql).nodes}


@pytest.fixture
def world() -> World:
    return World()


def text_of(explanation: Explanation) -> str:
    return "\n".join(rendered(explanation, "text"))


# ---- strategies of windows


def hop(strategy: str, slide: int = 4, items: str = "sum(n) AS n") -> str:
    windows = f"HOP(s, ts, INTERVAL {slide} SECONDS, INTERVAL 10 SECONDS, STRATEGY => '{strategy}')"
    return f"SELECT k, {WINDOW}, {items} FROM {windows} GROUP BY k, {WINDOW}"


def ending(every: int, items: str = "sum(n) AS n", by: str = "row_num") -> str:
    windows = f"SLIDE_BY_ROW(s, ts, INTERVAL 10 SECONDS, {every} ROWS, BY => '{by}', STRATEGY => 'bins')"
    return f"SELECT {WINDOW}, {items} FROM {windows} GROUP BY {WINDOW}"


def test_adaptive_windows_share_a_table_with_their_equals_alone(world: World) -> None:
    one = world.make(f"CREATE VIEW one AS {hop('adaptive')}")
    same = world.make(f"CREATE VIEW same AS {hop('adaptive', items='max(n) AS n')}")
    others = [hop("panes"), hop("adaptive", slide=2), hop("auto", slide=10), hop("windows")]
    tables = [world.make(f"CREATE VIEW v{i} AS {query}").query.blocks[0].panes for i, query in enumerate(others)]
    assert same.query.blocks[0].panes == one.query.blocks[0].panes and one.query.blocks[0].panes not in tables
    assert world.catalog.panes(one.query.blocks[0].panes).spans == SlidingWindows(10_000_000, 4_000_000)
    assert len(set(tables)) == 3  # panes of 2 s serve the first and the third
    (node,) = [node for node in explain_view(one, world.catalog, world.planning).nodes if node.name == "one"]
    kept = "a group with more than 2.5 rows in open windows by window, until it has fewer than 2; others by span"
    assert f"HOP 10 seconds every 4 seconds; {kept}" in "\n".join(node.how)
    assert "strategy adaptive; too little is known" in "\n".join(node.how)
    assert node.state[0].what.startswith("one row a run, window or span and key")


@pytest.mark.parametrize(
    ("query", "told_of"),
    [
        (hop("auto"), "strategy panes; {}: panes 24, windows 15, adaptive 15, rows 15"),
        (hop("windows"), "strategy windows; {}: panes 24, windows 15, adaptive 15, rows 15"),
        (hop("adaptive"), "strategy adaptive; {}: panes 24, windows 15, adaptive 15, rows 15"),
        (hop("rows"), "because strategy 'rows' was requested; {}: panes 24, windows 15, adaptive 15, rows 15"),
        (
            hop("auto", slide=1),
            "strategy panes by difference; {}: panes 29, windows 15, adaptive 15, rows 15, panes by difference 9",
        ),
        (hop("panes", slide=1, items="max(n) AS n"), "strategy panes; {}: panes 29, windows 15, adaptive 15, rows 15"),
        (ending(3), "strategy bins; {}: bins 6, rows 15"),
    ],
)
def test_what_all_strategies_would_cost_is_shown(world: World, query: str, told_of: str) -> None:
    """150 rows in 100 seconds, and 125 groups of a pane of 2 seconds in that time."""
    known = world.make(f"CREATE VIEW known AS {hop('panes')}").query.blocks[0].panes
    world.loads.update({"s": Load(150, 0, 100_000_000), known: Load(125, 0, 100_000_000)})
    assert told_of.format("predicted cost of a window, in steps") in text_of(world.explain(query))


def test_without_figures_it_is_said_what_is_assumed(world: World) -> None:
    assert "to predict costs, and many rows of a group in each pane are assumed" in text_of(world.explain(hop("auto")))
    assert "assumed" not in text_of(world.explain(hop("windows")))


def test_bins_keep_partials_of_values_where_rows_can_be_taken_out_again(world: World) -> None:
    every = world.make(f"CREATE VIEW every AS {ending(1)}")
    third = world.make(f"CREATE VIEW third AS {ending(3)} EMIT CHANGES")
    rank = world.make(f"CREATE VIEW ranked AS {ending(3, by='rank')}")
    assert {view.query.blocks[0].panes for view in (every, third, rank)} == {every.query.blocks[0].panes}
    panes = world.catalog.panes(every.query.blocks[0].panes)
    assert panes.numbered and panes.grain == 1 and not every.query.streams and not third.query.streams
    ends = [panes.column((view.query.blocks[0].bins or (0, 0, "", ""))[3]).partial for view in (every, third, rank)]
    assert ends == ["count(*)", "count_if((_row_num + 1) % 3 = 0)", "count(*)"]
    assert (third.operator, rank.query.blocks[0].bins) == ("whole", (10_000_000, 3, "rank", "rows"))
    (node,) = [node for node in explain_view(every, world.catalog, world.planning).nodes if node.name == "every"]
    assert "a row comes in with the windows" in "\n".join(node.how)
    assert "strategy bins; too little is known of the stream to predict costs" in "\n".join(node.how)
    assert node.keys == ("window_start", "window_end")
    assert node.state[0].what.startswith("one row a run, value and key") and not node.state[0].bounded


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (ending(1, "max(n) AS n"), "max(n) cannot be subtracted from a sum"),
        (ending(1, "sum(window_start) AS n"), "its rows are looked at window by window"),
    ],
)
def test_what_bins_cannot_do_is_done_over_rows(world: World, query: str, reason: str) -> None:
    explanation = text_of(world.explain(query))
    assert reason in explanation and "the rows of stream s" in explanation and "bins" not in explanation


def test_a_query_in_another_spelling_is_shown_as_it_was_read(world: World) -> None:
    explanation = world.explain("SELECT k, count(*) AS c\nFROM STREAM(s, 'CUT ON ts BY 60 SECS') GROUP BY k")
    canonical = (
        "SELECT k, count(*) AS `c` FROM TUMBLE(TABLE s, DESCRIPTOR(ts), SIZE => INTERVAL 1 MINUTE) AS `s`"
        " GROUP BY k, window_start, window_end, window_time"
    )
    assert text_of(explanation).splitlines()[0] == f"read as: {canonical}"
    assert "read as" not in text_of(world.explain(TUMBLE))
    assert [node.kind for node in explanation.nodes] == [node.kind for node in world.explain(canonical).nodes]


@pytest.mark.parametrize(
    ("query", "canonical"),
    [
        (
            "SELECT k, ts FROM NET(s, n)",
            "SELECT __q0.k, __q0.ts FROM (SELECT k, ts, sum(n) AS `__net` FROM s GROUP BY k, ts) AS __q0"
            " LATERAL VIEW explode(sequence(1, __q0.__net)) g AS __copy WHERE __q0.__net > 0",
        ),
        (
            "SELECT k, window_end FROM TUMBLE(HOP(s, ts, INTERVAL 1 MINUTE, INTERVAL 2 MINUTES), window_time,"
            " INTERVAL 1 HOUR)",
            "SELECT k, window_end FROM TUMBLE((SELECT k, n, ts, window_start, window_end, window_time FROM"
            " HOP(s, ts, INTERVAL 1 MINUTE, INTERVAL 2 MINUTES) AS s_1), window_time, INTERVAL 1 HOUR) AS `s`",
        ),
    ],
)
def test_a_relation_that_stands_for_a_query_is_shown_as_it_was_read(world: World, query: str, canonical: str) -> None:
    assert text_of(world.explain(query)).splitlines()[0] == f"read as: {canonical}"


# ---- kinds


@pytest.mark.parametrize(
    ("query", "kind", "keys"),
    [
        ("SELECT k, n FROM s WHERE n > 1", "stateless", ()),
        ("SELECT s.k, label FROM s JOIN names ON names.k = s.k", "stateless", ()),
        ("SELECT k, sum(n) AS n FROM s GROUP BY k", "partial", ("k",)),
        ("SELECT sum(n) AS n FROM s", "partial", ()),
        (TUMBLE, "partial", ("window_start", "window_end", "k")),
        ("SELECT DISTINCT k, n FROM s", "keyed", ("k", "n")),
        ("SELECT s.k, r.n FROM s JOIN r ON s.k = r.k", "join", ()),
        ("SELECT s.k, r.n FROM s LEFT JOIN r ON s.k = r.k", "keyed", ("k",)),
        ("SELECT k, n FROM s ORDER BY n LIMIT 3", "recomputed", ()),
        ("SELECT n, row_number() OVER (ORDER BY n) AS place FROM s", "recomputed", ()),
    ],
)
def test_kinds(world: World, query: str, kind: str, keys: tuple[str, ...]) -> None:
    node = world.explain(f"{query} EMIT CHANGES").nodes[-1]
    assert (node.kind, node.keys) == (kind, keys)
    assert node.append_only == (kind in ("stateless", "join"))
    assert bool(node.reason) == (not keys and kind not in ("stateless", "join"))


def test_the_reason_why_something_is_recomputed(world: World) -> None:
    node = world.explain("SELECT k, n FROM s ORDER BY n LIMIT 3 EMIT CHANGES").nodes[-1]
    assert node.reason == "LIMIT looks at all rows"
    read = text_of(world.explain("SELECT DISTINCT k FROM s"))
    assert "computed over rows at each read, because it has no aggregate" in read


def test_a_key_that_is_not_shown_has_the_name_of_its_column(world: World) -> None:
    assert world.nodes("SELECT sum(n) AS n FROM s GROUP BY k EMIT CHANGES")["query"].keys == ("k",)


def test_nodes_come_behind_what_they_read(world: World) -> None:
    nodes = world.explain(
        "SELECT a.k, a.c, names.label FROM (SELECT k, count(*) AS c FROM s GROUP BY k) a JOIN names ON names.k = a.k"
        " EMIT CHANGES"
    ).nodes
    seen: set[str] = set()
    for node in nodes:
        assert set(node.inputs) <= seen
        seen.add(node.id)
    assert {node.name: node.kind for node in nodes} == {
        "s": "stream",
        "query/1": "partial",
        "names": "table",
        "query": "stateless",
    }
    # What reads rows that can change has such rows itself.
    assert not nodes[-1].append_only


# ---- append-only, event time, progress


@pytest.mark.parametrize(
    ("clause", "appends"),
    [
        ("EMIT ON WINDOW CLOSE", False),
        ("EMIT ON WINDOW CLOSE LATE DROP", True),
        ("EMIT ON WINDOW CLOSE LATE ARCHIVE", True),
        ("TRIGGER ON WATERMARK, COUNTING 2 LATE DROP", False),
        ("EMIT CHANGES", False),
    ],
)
def test_a_window_that_is_shown_once_is_append_only(world: World, clause: str, appends: bool) -> None:
    node = world.nodes(f"{TUMBLE} {clause}")["query"]
    assert node.append_only == appends
    assert {"window_start", "window_end"} <= set(node.event_time)


def test_rows_of_a_view_meet_a_static_table_again_when_it_is_refreshed(world: World) -> None:
    world.make("CREATE VIEW plain AS SELECT k, n FROM s EMIT CHANGES")
    joined = "SELECT {0}.k, label FROM {0} JOIN names ON names.k = {0}.k EMIT CHANGES"
    assert world.nodes(joined.format("s"))["query"].append_only
    assert not world.nodes(joined.format("plain"))["query"].append_only


@pytest.mark.parametrize(
    ("items", "clause", "over"),
    [
        ("label, count(*) AS c", "GROUP BY label", "its partials"),
        ("label, count(*) AS c", "GROUP BY label EMIT CHANGES", "the partials of query/1"),
        ("label, median(n) AS m", "GROUP BY label", "the kept rows of s"),
        ("label, n", "EMIT CHANGES", "the rows of query/1"),
    ],
)
def test_what_a_refreshable_table_is_joined_with(world: World, items: str, clause: str, over: str) -> None:
    explanation = world.explain(f"SELECT {items} FROM s JOIN names REFRESHABLE ON s.k = names.k {clause}")
    assert f"static table names joined above {over}, so that REFRESH reaches old rows" in text_of(explanation)
    assert not explanation.nodes[-1].append_only
    if over == "the kept rows of s":
        assert "computed over rows at each read, because median(n) cannot be merged from partials" in text_of(
            explanation
        )


def test_progress_is_the_least_of_the_inputs(world: World) -> None:
    nodes = world.nodes("SELECT s.k, r.n FROM s JOIN r ON s.k = r.k EMIT CHANGES")
    assert nodes["s"].progress == "5 seconds behind the highest ts"
    assert nodes["query"].progress == "the least of s and r"


@pytest.mark.parametrize(
    ("others", "rule"),
    [
        ({"time": None, "rule": None}, "none: the stream has no event time"),
        ({"rule": None}, "moves only by ADVANCE: the stream has no WATERMARK"),
        ({"rule": Delay(0)}, "the highest ts"),
        (
            {"rule": Percentile(1000, 95, 100)},
            "95 percent of the last 1000 rows lie above it, taken anew every 100 rows",
        ),
        ({"rule": Lagging(3)}, "the highest ts of all rows but the last 3"),
        ({"rule": Computed("date_trunc('hour', ts)")}, "the highest date_trunc('hour', ts)"),
        ({"rule": Punctuation("k = 'x'")}, "the highest ts of the rows where k = 'x', which are no data"),
        (
            {"key": "k", "idle": 30_000_000},
            "5 seconds behind the highest ts; for each k on its own, the least of them for the stream;"
            " a k that is silent for 30 seconds is not waited for",
        ),
        (
            {"source": "rate", "idle": 30_000_000, "ahead": 60_000_000},
            "5 seconds behind the highest ts; a partition, or the stream beside others, that is silent for 30"
            " seconds is not waited for; a row more than 1 minute ahead of the clock does not move it",
        ),
    ],
)
def test_the_progress_of_a_stream(others: dict[str, object], rule: str) -> None:
    assert progress_rule(stream("s", **others)) == rule


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("TRIGGER COUNTING 3", "emits a key with every 3 records"),
        (
            "TRIGGER COUNTING 1, ON WATERMARK",
            "emits a key when its window closes and with every record; late rows corr",
        ),
        ("TRIGGER AFTER DELAY INTERVAL 5 SECONDS", "emits a key 5 seconds after its last change"),
        ("EMIT ON WINDOW CLOSE LATE FAIL", "emits when a window closes; a late row stops the run (LATE FAIL)"),
    ],
)
def test_what_fires(world: World, clause: str, said: str) -> None:
    assert world.nodes(f"{TUMBLE} {clause}")["query"].emits.startswith(said)


ONE_BY_ONE = "emits a key with every 3 records, one by one"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT k, count(*) AS c FROM s GROUP BY k", ONE_BY_ONE),
        ("SELECT k, count(*) AS c FROM (SELECT k FROM s WHERE n > 0) GROUP BY k", ONE_BY_ONE),
        ("SELECT label, count(*) AS c FROM s JOIN names ON s.k = names.k GROUP BY label", ONE_BY_ONE),
        ("SELECT s.k, count(*) AS c FROM s JOIN r ON s.k = r.k GROUP BY s.k", ONE_BY_ONE),
        ("SELECT s.k, count(*) AS c FROM s JOIN r ON s.k = r.k JOIN names ON s.k = names.k GROUP BY s.k", ONE_BY_ONE),
        ("SELECT k, count(*) AS c FROM (SELECT k FROM s UNION ALL SELECT k FROM r) GROUP BY k", ONE_BY_ONE),
        ("SELECT k, count(*) AS c FROM (SELECT k FROM s UNION SELECT k FROM r) GROUP BY k", "take rows back"),
        ("SELECT s.k, count(*) AS c FROM s LEFT JOIN r ON s.k = r.k GROUP BY s.k", "take rows back"),
        ("SELECT s.k, count(*) AS c FROM s LEFT SEMI JOIN r ON s.k = r.k GROUP BY s.k", "take rows back"),
        ("SELECT k, count(*) AS c FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = s.k) GROUP BY k", "rows back"),
        ("SELECT c, count(*) AS keys FROM (SELECT k, count(*) AS c FROM s GROUP BY k) GROUP BY c", "take rows back"),
        ("SELECT s.k, count(*) AS c FROM s, LATERAL (SELECT s.n + 1 AS m) GROUP BY s.k", "not numbered rows"),
        (
            "SELECT c, count(*) AS k FROM (SELECT k, count(*) AS c FROM s GROUP BY k TRIGGER COUNTING 2) GROUP BY c",
            "shows its answers when they are ready",
        ),
    ],
)
def test_how_records_are_counted(world: World, query: str, said: str) -> None:
    emits = world.nodes(f"{query} TRIGGER COUNTING 3")["query"].emits
    assert said in emits
    assert emits.startswith("emits a key with every 3 changes, run by run (") == (said != ONE_BY_ONE)


def test_rows_that_meet_a_table_once_are_kept_as_they_have_met_it(world: World) -> None:
    sums = "SELECT label, sum(n) AS n FROM s JOIN names ON s.k = names.k GROUP BY label TRIGGER COUNTING 3"
    met, *others = list(world.nodes(sums).values())[2:]
    assert met.how[-1] == "keeps its rows as they were joined with static tables: REFRESH changes none of them"
    assert not any("REFRESH" in line for each in others for line in each.how)


# ---- state


def test_state_and_what_bounds_it(world: World) -> None:
    def state(query: str) -> list[tuple[str, bool]]:
        return [(each.what, each.bounded) for each in world.explain(query).nodes[-1].state]

    ((plain, bounded),) = state("SELECT k, sum(n) AS n FROM s GROUP BY k")
    assert "bounded by the number of keys" in plain and bounded
    ((windows, bounded),) = state(TUMBLE)
    assert "grows with time" in windows and not bounded
    assert state("SELECT DISTINCT k FROM s") == [("the rows of stream s, UNBOUNDED", False)]
    shown = state("SELECT k, n FROM s ORDER BY n LIMIT 3 EMIT CHANGES")[-1]
    assert shown == ("what is shown: its rows; as many as its answer has", False)
    assert state("SELECT k, sum(n) AS n FROM s GROUP BY k EMIT CHANGES")[-1] == (
        "what is shown: one row a key; bounded by the number of keys",
        True,
    )
    assert "every change of them" in state(f"{TUMBLE} EMIT ON WINDOW CLOSE")[-1][0]
    assert any("waits to fire" in what for what, _ in state(f"{TUMBLE} TRIGGER COUNTING 2"))


def test_sharing(world: World) -> None:
    world.make(f"CREATE VIEW minutes AS {TUMBLE}")
    assert "shared with minutes" in text_of(world.explain(TUMBLE))
    assert "shared with" not in text_of(explain_view(world.catalog.view("minutes"), world.catalog, world.planning))


# ---- queries and views


def test_a_query_without_a_clause_also_says_how_its_changes_would_be_kept(world: World) -> None:
    explanation = world.explain("SELECT DISTINCT k FROM s")
    assert explanation.nodes[-1].kind == "recomputed"
    assert explanation.kept[-1].kind == "keyed"
    assert SUBSCRIBED in text_of(explanation)
    assert SUBSCRIBED not in text_of(world.explain("SELECT DISTINCT k FROM s EMIT CHANGES"))


def test_what_cannot_be_kept_says_why(world: World) -> None:
    explanation = world.explain("SELECT k AS a, n AS a FROM s")
    assert "no subscription is possible: two columns of it have the same name" in text_of(explanation)


def test_a_batch_query(world: World) -> None:
    explanation = world.explain("SELECT label FROM names")
    assert text_of(explanation) == "batch query: it reads no stream\noutput: label string"
    assert rendered(explanation, "mermaid") == ["flowchart TB"]


def test_a_view_shows_its_own_nodes(world: World) -> None:
    view = world.make(
        "CREATE VIEW top AS SELECT k, c FROM (SELECT k, count(*) AS c FROM s GROUP BY k) ORDER BY c DESC LIMIT 2"
        " EMIT CHANGES"
    )
    explanation = explain_view(view, world.catalog, world.planning)
    assert [(node.name, node.kind) for node in explanation.nodes] == [
        ("s", "stream"),
        ("top/1", "partial"),
        ("top", "recomputed"),
    ]
    assert not explanation.kept


def test_hints_reach_spark(world: World) -> None:
    query = "SELECT /*+ BROADCAST(names) */ s.k, label FROM s JOIN names ON s.k = names.k"
    assert world.make(f"CREATE VIEW hinted AS {query} EMIT CHANGES").query.text.startswith(
        "SELECT /*+ BROADCAST(names) */ "
    )


def test_a_query_over_a_view(world: World) -> None:
    world.make(f"CREATE VIEW minutes AS {TUMBLE}")
    explanation = world.explain("SELECT k, n FROM minutes WHERE n > 1")
    assert explanation.heading.startswith("query over views")
    assert [node.name for node in explanation.nodes] == ["s", "minutes", "query"]
    kept = {node.name: node for node in explanation.kept}
    assert kept["minutes"].emits.startswith("emits every change")
    assert kept["query"].kind == "stateless" and not kept["query"].append_only


# ---- over the partials of another view

COUNTS = (
    f"SELECT {WINDOW}, k, count(*) AS c, sum(n) AS n, min(n) AS l, avg(n) AS a FROM TUMBLE(s, ts, INTERVAL 1 MINUTE)"
)
COUNTS += f" GROUP BY {WINDOW}, k"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, sum(c) AS c FROM v GROUP BY k",
        "SELECT sum(c) + 1 AS c, sum(n) AS n, min(l) AS l FROM v WHERE k > 'a'",
        "SELECT date_trunc('HOUR', window_start) AS h, sum(n) AS n FROM v GROUP BY date_trunc('HOUR', window_start)",
        "SELECT k FROM v GROUP BY k HAVING sum(c) > 3",
    ],
)
def test_sums_over_counts_are_pushed_down(world: World, query: str) -> None:
    first = world.make(f"CREATE VIEW v AS {COUNTS}")
    above = world.make(f"CREATE VIEW w AS {query}")
    assert [use.panes for use in above.query.blocks] == [
        use.panes for use in first.query.blocks
    ] and not above.query.views
    assert above.query.included == ("v",)
    assert "pushed down to the partials of v" in world.explain(query).nodes[-1].how


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT max(c) AS c FROM v", "max over count looks at whole groups"),
        ("SELECT k, sum(a) AS a FROM v GROUP BY k", "sum over avg looks at whole groups"),
        ("SELECT k, count(*) AS c FROM v GROUP BY k", "count looks at the rows of the view"),
        ("SELECT sum(c) AS c FROM v WHERE c > 1", "it looks at c, which only whole groups tell"),
        ("SELECT c, sum(n) AS n FROM v GROUP BY c", "it looks at c, which only whole groups tell"),
        ("SELECT sum(DISTINCT c) AS c FROM v", "sum over count looks at whole groups"),
        ("SELECT k, c FROM v", "it has no aggregate"),
        (
            "SELECT sum(v.c) AS c FROM v JOIN names ON v.k = names.k",
            "it joins the rows of the view, or puts them into windows",
        ),
    ],
)
def test_what_only_whole_groups_tell_is_gathered(world: World, query: str, why: str) -> None:
    world.make(f"CREATE VIEW v AS {COUNTS}")
    above = world.make(f"CREATE VIEW w AS {query}")
    assert list(above.query.views.values()) == ["v"] and not above.query.blocks
    assert f"gather v, because {why}" in world.explain(query).nodes[-1].how


@pytest.mark.parametrize(
    "query",
    [
        f"{COUNTS} HAVING count(*) > 1",
        f"{COUNTS} ORDER BY c LIMIT 3",
        f"{COUNTS} EMIT ON WINDOW CLOSE",
        f"{COUNTS} EMIT CHANGES",
        "SELECT s.k, count(*) AS c FROM s JOIN names ON names.k = s.k GROUP BY s.k",
    ],
)
def test_views_that_show_something_else_than_their_partials_are_gathered(world: World, query: str) -> None:
    world.make(f"CREATE VIEW v AS {query}")
    above = world.make("CREATE VIEW w AS SELECT k, sum(c) AS c FROM v GROUP BY k")
    assert list(above.query.views.values()) == ["v"] and not above.query.blocks


# ---- forms


def test_json(world: World) -> None:
    figures = {"s": NodeStatistics(7, 2, 1.5, 10, 1000, bound=1_000_000, bounds={"ts": 1_000_000})}
    explanation = world.explain(f"{TUMBLE} EMIT ON WINDOW CLOSE")
    (line,) = rendered(explanation, "json", figures)
    document = json.loads(line)
    assert [node["kind"] for node in document["nodes"]] == ["stream", "partial"]
    first, last = document["nodes"]
    assert first["figures"] == {
        "version": 7, "rows": 2, "milliseconds": 1.5, "state_rows": 10, "state_bytes": 1000,
        "bound": "1970-01-01 00:00:01", "bounds": {"ts": "1970-01-01 00:00:01"},
    }  # fmt: skip
    assert last["inputs"] == [first["id"]] and last["keys"] == ["window_start", "window_end", "k"]
    assert [column["name"] for column in document["output"]] == ["window_start", "window_end", "k", "n"]
    assert "if_subscribed" not in document


def test_figures_in_words(world: World) -> None:
    figures = {"s": NodeStatistics(7, 1, 1234.5, 10, 1000), "r": NodeStatistics()}
    lines = rendered(world.explain("SELECT s.k FROM s JOIN r ON s.k = r.k EMIT CHANGES"), "text", figures)
    assert "  last changed by version 7: 1 row, 1,234.5 ms" in lines
    assert "  kept now: 10 rows, 1,000 bytes" in lines and "  kept now: 0 rows, 0 bytes" in lines


@pytest.mark.parametrize(("form", "first"), [("dot", "digraph plan {"), ("mermaid", "flowchart TB"), ("svg", "<svg ")])
def test_pictures(world: World, form: str, first: str) -> None:
    lines = rendered(world.explain(TUMBLE), form)
    assert lines[0].startswith(first)
    assert any("keyed by window" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "analyze", "form"),
    [
        ("v", False, "text"),
        ("(FORMAT JSON) SELECT 1", False, "json"),
        ("(FORMAT TEXT) v", False, "text"),
        ("ANALYZE v", True, "text"),
        ("(ANALYZE, FORMAT JSON) v", True, "json"),
        ("GRAPH SELECT 1", False, "mermaid"),
        ("(GRAPH) v", False, "mermaid"),
        ("(GRAPH SVG) v", False, "svg"),
        ("(graph dot, analyze) v", True, "dot"),
        ("(SELECT 1)", False, "text"),
        ("graph", False, "text"),
        ("analyze", False, "text"),
    ],
)
def test_options(options: str, analyze: bool, form: str) -> None:
    (statement,) = parse(f"EXPLAIN {options}")
    assert isinstance(statement, Explain)
    assert (statement.analyze, statement.format) == (analyze, form)


# ---- in a home


@pytest.mark.spark
def test_analyze_has_the_figures_of_the_last_commit(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT)")
    home.sql(
        "CREATE VIEW top AS SELECT k, c FROM (SELECT k, count(*) AS c FROM s GROUP BY k) ORDER BY c DESC, k LIMIT 1"
        " EMIT CHANGES"
    )
    home.sql("CREATE VIEW plain AS SELECT k FROM s WHERE n > 1")
    home.insert("s", [("a", 1), ("b", 2)])
    ((line,),) = home.query("EXPLAIN (ANALYZE, FORMAT JSON) top")
    nodes = {node["name"]: node for node in json.loads(line)["nodes"]}
    assert {name: node["figures"]["rows"] for name, node in nodes.items()} == {"s": 2, "top/1": 2, "top": 1}
    assert nodes["top/1"]["figures"]["state_rows"] == 4  # a row a key in its partials, and in what is shown
    assert all(node["figures"]["milliseconds"] > 0 for node in nodes.values())
    ((times,),) = home.query("SELECT milliseconds FROM sys.runs ORDER BY version DESC LIMIT 1")
    phases = dict(times)
    parts = phases["changes top"] + phases["changes top/1"]
    assert phases["changes"] == pytest.approx(parts, abs=1)
    assert home.query("SELECT view, node, kind, keys, append_only, reason FROM sys.nodes") == [
        ("plain", "plain", "stateless", [], True, None),
        ("top", "top/1", "partial", ["k"], False, None),
        ("top", "top", "recomputed", [], False, "LIMIT looks at all rows"),
    ]


def test_rules_are_shown_step_by_step(world: World) -> None:
    (statement,) = parse("SELECT k FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k) EMIT CHANGES")
    assert isinstance(statement, SelectStatement)
    lines = explain_rules(statement.text, statement.query, world.catalog, world.planning)
    assert [line for line in lines if not line.startswith(" ")] == ["as written:", "decorrelate:"]
    assert any("Join semi" in line for line in lines)
    (plain,) = parse("SELECT k FROM s")
    assert isinstance(plain, SelectStatement)
    assert explain_rules(plain.text, plain.query, world.catalog, world.planning)[-1] == "no rule changes it"
