"""Plans as pictures: what is drawn, that nothing lies on anything else, and that text cannot break out of its box."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan.graph import KINDS, LINE_COLUMNS, MOST_LINES, TITLE_COLUMNS, GraphNode, dot, mermaid, svg
from anabranch.plan.layout import Box, Layout, Size, lay_out

SVG = "{http://www.w3.org/2000/svg}"
PLAN = [
    GraphNode("v", "view", "minutes", ("emits when a window closes",), ("p", "n")),
    GraphNode("s", "stream", "bids", ("delay 5 seconds",), ()),
    GraphNode("p", "partial", "bids_by_auction", ("bids = count(*)", "keys auction"), ("s", "s")),
    GraphNode("n", "table", "names", (), ()),
]
HOSTILE = [
    "\"quoted\" 'single' `back`",
    "</text><script>alert(1)</script>",
    "]]> <!-- --> &amp; &lt; &#0; %xxe;",
    "SELECT a,\n\tb\r\nFROM t -- comment",
    "\x00\x1b[31m\x85\u2028\ud800\ufffe\U0001f600\u202e",
    "\\N \\l \\",
    '"]; x --> y; %%{init: {}}%% #35; #quot;',
    "x" * 10_000,
    "日本語" * 100,
    "",
    "   ",
]


@st.composite
def plans(draw: st.DrawFn) -> list[GraphNode]:
    """Nodes without circles, in any order."""
    texts = st.one_of(st.text(max_size=80), st.sampled_from(HOSTILE))
    count = draw(st.integers(0, 14))
    nodes: list[GraphNode] = []
    for number in range(count):
        inputs = draw(st.lists(st.sampled_from([node.id for node in nodes]), max_size=4)) if nodes else []
        kind = draw(st.sampled_from([*KINDS, "something else"]))
        lines = tuple(draw(st.lists(texts, max_size=MOST_LINES + 2)))
        nodes.append(GraphNode(f"node {number}", kind, draw(texts), lines, tuple(inputs)))
    return draw(st.permutations(nodes))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Size], dict[str, list[str]]]:
    count = draw(st.integers(1, 20))
    sizes = {str(n): Size(draw(st.integers(2, 500)), draw(st.integers(2, 200))) for n in range(count)}
    inputs = {str(n): draw(st.lists(st.integers(0, n - 1).map(str), max_size=4)) for n in range(1, count)}
    return sizes, inputs


def overlap(one: Box, other: Box) -> bool:
    apart = (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )
    return not apart


def check(layout: Layout, inputs: dict[str, list[str]]) -> None:
    for one, other in combinations(layout.boxes.values(), 2):
        assert not overlap(one, other)
    for box in layout.boxes.values():
        assert box.x >= 0 and box.y >= 0
        assert box.x + box.width <= layout.width and box.y + box.height <= layout.height
    for target, sources in inputs.items():
        for source in sources:
            assert layout.boxes[source].y + layout.boxes[source].height < layout.boxes[target].y
    for edge in layout.edges:
        (x, y), (to_x, to_y) = edge.start, edge.end
        # Straight down beside the boxes of a layer, then a curve where no box is.
        down = Box(x, edge.top, 0, y - edge.top)
        curve = Box(min(x, to_x), y, abs(x - to_x), to_y - y)
        for box in layout.boxes.values():
            assert not overlap(box, curve)
            assert not (box.x < down.x < box.x + box.width and box.y < y and edge.top < box.y + box.height)


@settings(deadline=None)
@given(graphs())
def test_no_box_lies_on_another_and_no_line_goes_through_one(
    graph: tuple[dict[str, Size], dict[str, list[str]]],
) -> None:
    sizes, inputs = graph
    layout = lay_out(sizes, inputs)
    assert {id: Size(box.width, box.height) for id, box in layout.boxes.items()} == sizes
    check(layout, inputs)
    assert sum(edge.arrives for edge in layout.edges) == sum(len(set(sources)) for sources in inputs.values())


@settings(deadline=None)
@given(plans())
def test_any_plan_is_a_picture_with_a_box_a_node_and_an_arrow_an_input(nodes: list[GraphNode]) -> None:
    root = ElementTree.fromstring(svg(nodes))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "style", "defs", "marker", "path", "g", "title", "rect", "text",
    }  # fmt: skip
    boxes = [
        Box(*(int(rect.get(name, "")) for name in ("x", "y", "width", "height"))) for rect in root.iter(f"{SVG}rect")
    ]
    assert len(boxes) == len(nodes)
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    tips = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(tips) == sum(len(set(node.inputs)) for node in nodes)
    assert all("\n" not in (text.text or "") for text in root.iter(f"{SVG}text"))


@settings(deadline=None)
@given(plans())
def test_no_text_breaks_out_of_dot(nodes: list[GraphNode]) -> None:
    quoted = r'"(?:[^"\\\n]|\\[\\"l])*"'
    node = re.compile(rf"  n\d+ \[label={quoted} fillcolor={quoted} color={quoted} fontcolor={quoted}\]")
    head, *lines, end = dot(nodes).split("\n")
    assert (head, end) == ("digraph plan {", "}")
    own = lines[3 : 3 + len(nodes)]
    assert all(node.fullmatch(line) for line in own)
    assert all(re.fullmatch(r"  n\d+ -> n\d+", line) for line in lines[3 + len(nodes) :])


@settings(deadline=None)
@given(plans())
def test_no_text_breaks_out_of_mermaid(nodes: list[GraphNode]) -> None:
    head, *lines = mermaid(nodes).split("\n")
    assert head == "flowchart TB"
    labels = [line for line in lines if "[" in line]
    assert len(labels) == len(nodes)
    for line in labels:
        found = re.fullmatch(r'  n\d+\["(.*)"\]', line)
        assert found is not None
        assert re.fullmatch(r"(?:[^\W_]|[ ,()=/'…]|#\d+;)*", found.group(1).replace("<br/>", ""))
    rest = [line for line in lines if "[" not in line]
    assert all(re.fullmatch(r"  (n\d+ --> n\d+|classDef \w+ [\w#:,]+|class [n\d,]+ \w+)", line) for line in rest)


def test_what_is_drawn() -> None:
    root = ElementTree.fromstring(svg(PLAN))
    boxes = {}
    for group in root.iter(f"{SVG}g"):
        if group.find(f"{SVG}rect") is not None:
            kind, title, *lines = [text.text for text in group.iter(f"{SVG}text")]
            assert group.get("class") == kind
            boxes[title] = lines
    assert boxes == {
        "minutes": ["emits when a window closes"],
        "bids": ["delay 5 seconds"],
        "bids_by_auction": ["bids = count(*)", "keys auction"],
        "names": [],
    }
    style = root.find(f"{SVG}style")
    assert style is not None and style.text is not None
    light, dark = style.text.split("@media (prefers-color-scheme: dark)")
    for kind, colours in KINDS.items():
        assert f".{kind} rect {{ fill: {colours.fill}; stroke: {colours.border}; }}" in light
        assert f".{kind} rect {{ fill: {colours.dark_fill}; stroke: {colours.dark_border}; }}" in dark


def test_a_source_stands_right_above_what_needs_it() -> None:
    layout = lay_out(dict.fromkeys("abct", Size(40, 20)), {"b": "a", "c": ["b", "t"]})
    assert layout.boxes["t"].y == layout.boxes["b"].y


def test_a_chain_stands_in_one_line() -> None:
    layout = lay_out({"a": Size(40, 20), "b": Size(100, 20), "c": Size(60, 20)}, {"b": "a", "c": "b"})
    assert {box.x + box.width // 2 for box in layout.boxes.values()} == {50}
    assert all(edge.start[0] == edge.end[0] for edge in layout.edges)


def test_crossings_are_undone() -> None:
    layout = lay_out(dict.fromkeys("abcd", Size(40, 20)), {"c": "b", "d": "a"})
    a, b, c, d = (layout.boxes[id].x for id in "abcd")
    assert (a < b) == (d < c)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_cut_and_shown_as_it_is(text: str) -> None:
    root = ElementTree.fromstring(svg([GraphNode("n", "view", text, (text,), ())]))
    [_, title, line] = [each.text or "" for each in root.iter(f"{SVG}text")]
    plain = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    for shown, columns in ((title, TITLE_COLUMNS), (line, LINE_COLUMNS)):
        assert len(shown) <= columns
        assert plain.startswith(shown.removesuffix("…"))
        assert shown == plain or shown.endswith("…")
    box = next(root.iter(f"{SVG}rect"))
    assert int(box.get("width", "")) < 500


def test_many_lines_are_counted() -> None:
    node = GraphNode("n", "view", "v", tuple(f"line {n}" for n in range(MOST_LINES + 5)), ())
    texts = [each.text for each in ElementTree.fromstring(svg([node])).iter(f"{SVG}text")]
    assert len(texts) == 2 + MOST_LINES
    assert texts[-2:] == [f"line {MOST_LINES - 2}", "… 6 more"]


@pytest.mark.parametrize("write", [dot, mermaid, svg])
def test_nodes_that_do_not_fit_together_are_refused(write: object) -> None:
    assert callable(write)
    with pytest.raises(ValueError, match="there is: a"):
        write([GraphNode("a", "view", "", (), ("b",))])
    with pytest.raises(ValueError, match="two nodes"):
        write([GraphNode("a", "view", "", (), ()), GraphNode("a", "table", "", (), ())])


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="in a circle or come after one: a, b"):
        svg([GraphNode("a", "view", "", (), ("b",)), GraphNode("b", "view", "", (), ("a",))])


def test_the_contrast_of_text_is_enough() -> None:
    from anabranch.plan.graph import ARROW, DARK_TEXT, TEXT

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    for colours in KINDS.values():
        assert contrast(colours.fill, TEXT) > 7
        assert contrast(colours.fill, colours.border) > 4.5
        assert contrast(colours.dark_fill, DARK_TEXT) > 7
        assert contrast(colours.dark_fill, colours.dark_border) > 4.5
    assert contrast(ARROW, "#ffffff") > 3
    assert contrast(ARROW, "#0d1117") > 3
