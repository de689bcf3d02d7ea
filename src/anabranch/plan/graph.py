"""A plan as a picture: nodes as Graphviz dot, as Mermaid, or as an SVG that needs no other tool.

    nodes = [
        GraphNode("s", "stream", "bids", ("kafka, delay 5 seconds",), ()),
        GraphNode("v", "view", "minutes", (), ("s",)),
    ]
    Path("plan.svg").write_text(svg(nodes))

Titles and lines may hold any text, such as whole queries: it is cut to size and escaped. This module knows nothing of
plans but these nodes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from anabranch.plan.layout import Box, Edge, Layout, Size, lay_out

#: Limits of the text of a box, in columns and lines. An SVG shows the rest as a tooltip.
TITLE_COLUMNS = 44
LINE_COLUMNS = 56
MOST_LINES = 10
MOST_HIDDEN = 4000


@dataclass(frozen=True)
class GraphNode:
    """A box: its kind, name, description, and input nodes."""

    id: str
    kind: str
    title: str
    lines: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Colours:
    """The colours of a kind: the fill of a box, and its border and label."""

    fill: str
    border: str
    dark_fill: str
    dark_border: str


#: Each box also has its kind as text, for readers who do not see all colours.
KINDS = {
    "stream": Colours("#e7f0fd", "#2463b4", "#10233f", "#79b0ff"),
    "table": Colours("#eff1f4", "#56606d", "#20262e", "#a9b4c2"),
    "stateless": Colours("#e0f5f2", "#0d7066", "#0b2b29", "#58cdbe"),
    "keyed": Colours("#f2ebfd", "#6d3fc0", "#271b41", "#bf9cff"),
    "join": Colours("#fbe8f3", "#a3246f", "#3a1029", "#f08cc4"),
    "partial": Colours("#e7f5e4", "#2c7326", "#12301a", "#74cf7c"),
    "recomputed": Colours("#fdebe0", "#ad4a0b", "#3a1d0c", "#ffa46b"),
    "lookup": Colours("#fde8f1", "#a8326b", "#3a1226", "#f590bd"),
    "view": Colours("#fcf3d2", "#7d6000", "#332a08", "#e3c04e"),
}
OTHER = KINDS["table"]
TEXT, DARK_TEXT = "#1c2126", "#e6ebf1"
#: Visible on white and on black: the background of a picture is not always known.
ARROW = "#7b8591"


def dot(nodes: Sequence[GraphNode]) -> str:
    """The nodes as text for Graphviz.

    >>> print(dot([GraphNode("s", "stream", "bids", (), ())]))
    digraph plan {
      bgcolor="transparent"
      node [shape=box style="rounded,filled" fontname="monospace" fontsize=11]
      edge [color="#7b8591"]
      n0 [label="stream\\lbids\\l" fillcolor="#e7f0fd" color="#2463b4" fontcolor="#1c2126"]
    }
    """
    names = _names(nodes)
    lines = [
        "digraph plan {",
        '  bgcolor="transparent"',
        '  node [shape=box style="rounded,filled" fontname="monospace" fontsize=11]',
        f'  edge [color="{ARROW}"]',
    ]
    for node in nodes:
        colours = KINDS.get(node.kind, OTHER)
        label = "".join(f"{_dot_text(line)}\\l" for line in _shown(node))
        lines.append(
            f'  {names[node.id]} [label="{label}" fillcolor="{colours.fill}" color="{colours.border}"'
            f' fontcolor="{TEXT}"]'
        )
    lines += [f"  {names[source]} -> {names[target]}" for source, target in _arrows(nodes)]
    return "\n".join([*lines, "}"])


def mermaid(nodes: Sequence[GraphNode]) -> str:
    """The nodes as a Mermaid flowchart.

    >>> print(mermaid([GraphNode("s", "stream", "bids", ("a < b",), ())]))
    flowchart TB
      n0["stream<br/>bids<br/>a #60; b"]
      classDef stream fill:#e7f0fd,stroke:#2463b4,color:#1c2126
      class n0 stream
    """
    names = _names(nodes)
    lines = ["flowchart TB"]
    lines += [f'  {names[node.id]}["{"<br/>".join(map(_mermaid_text, _shown(node)))}"]' for node in nodes]
    lines += [f"  {names[source]} --> {names[target]}" for source, target in _arrows(nodes)]
    for kind in dict.fromkeys(_kind(node) for node in nodes):
        colours = KINDS.get(kind, OTHER)
        lines.append(f"  classDef {kind} fill:{colours.fill},stroke:{colours.border},color:{TEXT}")
        lines.append(f"  class {','.join(names[node.id] for node in nodes if _kind(node) == kind)} {kind}")
    return "\n".join(lines)


def svg(nodes: Sequence[GraphNode]) -> str:
    """The nodes as a standalone SVG, for light and for dark pages."""
    _names(nodes)
    sizes = {node.id: _size(node) for node in nodes}
    layout = lay_out(sizes, {node.id: node.inputs for node in nodes})
    drawn = [_draw_edge(edge) for edge in layout.edges]
    drawn += [_draw_box(node, layout.boxes[node.id]) for node in nodes]
    return "\n".join([*_head(layout), *drawn, "</g>", "</svg>", ""])


# ---- what the three have in common


def _names(nodes: Sequence[GraphNode]) -> dict[str, str]:
    """A name for each node that is no keyword of any format. Raises where ids repeat or an input is missing."""
    names: dict[str, str] = {}
    for number, node in enumerate(nodes):
        if node.id in names:
            raise ValueError(f"two nodes have the id {node.id!r}")
        names[node.id] = f"n{number}"
    for node in nodes:
        for source in node.inputs:
            if source not in names:
                raise ValueError(f"node {node.id!r} has the input {source!r}; there is: {', '.join(names)}")
    return names


def _arrows(nodes: Iterable[GraphNode]) -> list[tuple[str, str]]:
    """The edges, from and to; two uses of the same input are one arrow."""
    return [(source, node.id) for node in nodes for source in dict.fromkeys(node.inputs)]


def _kind(node: GraphNode) -> str:
    return node.kind if node.kind in KINDS else "other"


def _shown(node: GraphNode) -> list[str]:
    """Kind, title and lines, cut to the limits."""
    shown = [_cut(node.kind, TITLE_COLUMNS), _cut(node.title, TITLE_COLUMNS)]
    lines = [_cut(line, LINE_COLUMNS) for line in node.lines[:MOST_LINES]]
    if len(node.lines) > MOST_LINES:
        lines[-1] = f"… {len(node.lines) - MOST_LINES + 1} more"
    return shown + lines


def _plain(text: str) -> str:
    """A text on one line, without invisible characters or those that XML forbids."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def _cut(text: str, columns: int) -> str:
    text = _plain(text)
    if _columns(text) <= columns:
        return text
    while _columns(text) > columns - 1:
        text = text[: columns - 1] if len(text) >= columns else text[:-1]
    return text.rstrip() + "…"


def _columns(text: str) -> int:
    """The width of a text in a monospaced font, in which some letters are two columns wide."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _dot_text(text: str) -> str:
    # Graphviz reads entities in labels, and backslash escapes of its own.
    return text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


def _mermaid_text(text: str) -> str:
    # Mermaid reads some text as Markdown, HTML or directives: all but letters, digits and a few signs is escaped by
    # character code. It looks for formulas ($$), line ends (\n) and icons (fa:) after unescaping, so a zero-width
    # space breaks them up.
    return "".join(
        c if c.isalnum() or c in " ,()=/'" else f"#{ord(c)};#8203;" if c in "$\\:" else f"#{ord(c)};" for c in text
    )


# ---- SVG

MARGIN = 12
#: The width of a letter as a share of the font size, large enough for all monospaced fonts.
LETTER = 0.605
KIND_SIZE, TITLE_SIZE, LINE_SIZE = 10, 13, 12
PADDING = 14
BASELINES = (20, 38)  # of the kind and the title
FIRST_LINE, LINE_HEIGHT = 60, 17
LEAST_WIDTH = 120
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


def _size(node: GraphNode) -> Size:
    kind, title, *lines = _shown(node)
    widths = [
        _columns(kind) * (KIND_SIZE * LETTER + 1),  # its letters are spaced out
        _columns(title) * TITLE_SIZE * LETTER,
        *(_columns(line) * LINE_SIZE * LETTER for line in lines),
    ]
    height = FIRST_LINE + (len(lines) - 1) * LINE_HEIGHT + 12 if lines else BASELINES[1] + 13
    # Even widths, so that the middle of a box is a whole number.
    return Size(max(LEAST_WIDTH, 2 * round(max(widths) / 2 + PADDING)), height)


def _head(layout: Layout) -> list[str]:
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    light = [f".anabranch-plan text {{ fill: {TEXT}; }}"]
    dark = [f".anabranch-plan text {{ fill: {DARK_TEXT}; }}"]
    for kind, colours in {**KINDS, "other": OTHER}.items():
        light.append(f".anabranch-plan .{kind} rect {{ fill: {colours.fill}; stroke: {colours.border}; }}")
        light.append(f".anabranch-plan .{kind} .kind {{ fill: {colours.border}; }}")
        dark.append(f".anabranch-plan .{kind} rect {{ fill: {colours.dark_fill}; stroke: {colours.dark_border}; }}")
        dark.append(f".anabranch-plan .{kind} .kind {{ fill: {colours.dark_border}; }}")
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="anabranch-plan" role="img" aria-label="plan" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" style="max-width: 100%; height: auto">',
        "<style>",
        f".anabranch-plan text {{ font: {LINE_SIZE}px {_FONT}; }}",
        f".anabranch-plan .title {{ font-size: {TITLE_SIZE}px; font-weight: bold; }}",
        f".anabranch-plan .kind {{ font-size: {KIND_SIZE}px; letter-spacing: 1px; }}",
        ".anabranch-plan rect { stroke-width: 1.5; }",
        f".anabranch-plan .arrow {{ fill: none; stroke: {ARROW}; stroke-width: 1.5; }}",
        *light,
        f"@media (prefers-color-scheme: dark) {{ {' '.join(dark)} }}",
        "</style>",
        '<defs><marker id="anabranch-tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0,0.5 L10,5 L0,9.5 z" fill="{ARROW}"/></marker></defs>',
        f'<g transform="translate({MARGIN} {MARGIN})">',
    ]


def _draw_edge(edge: Edge) -> str:
    (x, y), (to_x, to_y) = edge.start, edge.end
    middle = (y + to_y) // 2
    down = f" L{x},{y}" if edge.top != y else ""
    curve = f" L{to_x},{to_y}" if x == to_x else f" C{x},{middle} {to_x},{middle} {to_x},{to_y}"
    tip = ' marker-end="url(#anabranch-tip)"' if edge.arrives else ""
    return f'<path class="arrow" d="M{x},{edge.top}{down}{curve}"{tip}/>'


def _draw_box(node: GraphNode, box: Box) -> str:
    kind, title, *lines = _shown(node)
    whole = "\n".join([_plain(node.title), *map(_plain, node.lines)])[:MOST_HIDDEN]
    x = box.x + PADDING
    parts = [
        f'<g class="{_kind(node)}">',
        f"<title>{escape(whole)}</title>",
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="7"/>',
        f'<text class="kind" x="{x}" y="{box.y + BASELINES[0]}">{escape(kind)}</text>',
        f'<text class="title" x="{x}" y="{box.y + BASELINES[1]}">{escape(title)}</text>',
    ]
    for number, line in enumerate(lines):
        parts.append(f'<text x="{x}" y="{box.y + FIRST_LINE + number * LINE_HEIGHT}">{escape(line)}</text>')
    return "\n".join([*parts, "</g>"])
