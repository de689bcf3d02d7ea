"""Figures to a table for the terminal, a JSON file for programs and a chart for the docs. Measures nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from anabranch.bench.figures import Curve, Figure, Outcome, Picture, Totals

HEADER = ("", "measure", "Anabranch", "beside", "", "ratio", "target", "")
_RIGHT = (2, 4, 5)


def amount(value: float, unit: str) -> str:
    """A figure as people read it.

    >>> amount(1_234_567, "rows/s"), amount(812.4, "ms"), amount(12.5, "reads/s"), amount(2345, "entries")
    ('1.23 M rows/s', '812 ms', '12.5 reads/s', '2,345 entries')
    """
    if unit == "rows/s" and value >= 10_000:
        return f"{value / 1e6:.2f} M rows/s" if value >= 1e6 else f"{value / 1e3:,.0f} k rows/s"
    if unit == "ms":
        return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"
    return (f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}").rstrip()


def table(figures: Sequence[Figure]) -> str:
    """The figures in aligned columns."""
    rows = [HEADER]
    for each in figures:
        ours, theirs = amount(each.ours, each.unit), amount(each.theirs, each.unit)
        target = "" if each.target is None else str(each.target)
        rows.append(
            (f"({each.measure})", each.what, ours, each.peer, theirs, f"{each.ratio:.2f} x", target, each.verdict)
        )
    widths = [max(len(row[index]) for row in rows) for index in range(len(HEADER))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in _RIGHT else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def notes_text(figures: Sequence[Figure]) -> str:
    """What must be known of how figures came about, each thing said once."""
    peers: dict[tuple[str, str], dict[str, None]] = {}
    for each in figures:
        if each.note:
            peers.setdefault((each.measure, each.note), {})[each.peer] = None
    return "\n".join(f"({measure}) {', '.join(names)}: {note}." for (measure, note), names in peers.items())


def totals_text(totals: Sequence[Totals]) -> str:
    """What became of the rows, on each side."""
    lines = []
    for each in totals:
        ours = "exactly the truth" if each.exact else "NOT the truth"
        lines.append(
            f"({each.measure}) {each.rows:,} {each.what}; Anabranch shows {each.ours:,}: {ours}."
            f" Structured Streaming dropped {each.dropped:,}{each.given} as late"
            f" and never emitted {each.never_emitted:,}."
        )
    return "\n".join(lines)


def results(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was found, as plain JSON."""
    return {
        "about": dict(about),
        "figures": [each.to_json() for outcome in outcomes for each in outcome.figures],
        "totals": [each.to_json() for outcome in outcomes for each in outcome.totals],
        "curves": [each.to_json() for outcome in outcomes for each in _curves(outcome)],
        "phases": {name: values for outcome in outcomes for name, values in (outcome.phases or {}).items()},
    }


def _measured(about: Mapping[str, Any], medians: str = "") -> str:
    return f"{about['cores']} cores, medians of {medians or about['repeat']}, {about['date']}"


def _curves(outcome: Outcome) -> list[Curve]:
    return [*outcome.curves, *(curve for picture in outcome.pictures for curve in picture.curves)]


def write(out: Path, outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> list[Path]:
    """Write results.json, chart.svg and the pictures of curves; their paths."""
    out.mkdir(parents=True, exist_ok=True)
    found = results(outcomes, about)
    plain, picture = out / "results.json", out / "chart.svg"
    plain.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    picture.write_text(chart_of(found), encoding="utf-8")
    paths = [plain, picture]
    for curve in (each for outcome in outcomes for each in outcome.curves):
        paths.append(out / f"{curve.name}.svg")
        paths[-1].write_text(plot(curve, _measured(about, curve.medians)), encoding="utf-8")
    for made in (each for outcome in outcomes for each in outcome.pictures):
        paths.append(out / f"{made.name}.svg")
        paths[-1].write_text(plots(made), encoding="utf-8")
    return paths


# ---------------------------------------------------------------------------------------------- the chart

WIDTH, BARS, LINE, TOP, MARGIN = 900, 370, 26, 74, 16
#: How wide a letter of the labels is at the most, on average; fonts differ.
LETTER = 6.0
#: A bar of ten times the peer's figure is as long as they come.
LONGEST = 10.0
COLOURS = {"met": "#2f7d5b", "missed": "#b5493a", "reported": "#7d8791"}


def chart_of(found: Mapping[str, Any]) -> str:
    """The chart of the figures of a results.json."""
    figures = [Figure.from_json(each) for each in found["figures"]]
    machine = _measured(found["about"])
    # The measures with a name bring their own rows, and say how many.
    on_bids = any(len(figure.measure) == 1 for figure in figures)
    return chart(figures, f"{found['about']['rows']:,} bids, {machine}" if on_bids else machine)


def chart(figures: Sequence[Figure], subtitle: str) -> str:
    """One bar a figure: Anabranch as a multiple of what stands beside it, with a mark where the target is.

    Targets that are to be exceeded and limits that are to be kept stand apart: there long bars are good, here short.
    """
    groups = [
        ("Speed: times as fast as (longer is better)", [f for f in figures if f.speed]),
        ("Cost: times as much as (shorter is better)", [f for f in figures if not f.speed]),
    ]
    body: list[str] = []
    left = MARGIN + 10 + round(LETTER * max((len(_named(each)) for each in figures), default=0))
    width = left + BARS + 8 + MARGIN + round(LETTER * max((len(_label(each)) for each in figures), default=0))
    y = TOP
    for title, members in groups:
        if not members:
            continue
        body.append(_text(16, y, title, weight="bold"))
        y += LINE
        for each in members:
            body += _bar(each, left, y)
            y += LINE
        y += LINE // 2
    subtitle = f"{subtitle}; a black mark is the target"
    return _picture(y + 8, "Anabranch beside its peers", subtitle, body, max(width, WIDTH))


def _picture(height: int, title: str, subtitle: str, body: list[str], width: int = WIDTH) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="Results of the bench">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(16, 28, title, weight="bold", size=17),
        _text(16, 48, subtitle, fill="#57606a"),
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def _named(figure: Figure) -> str:
    return f"({figure.measure}) {figure.what} : {figure.peer}"


def _label(figure: Figure) -> str:
    more = "+" if figure.ratio > LONGEST else ""
    return f"{figure.ratio:.2f} x{more} ({amount(figure.ours, figure.unit)})"


def _bar(figure: Figure, left: int, y: int) -> list[str]:
    length = max(2.0, BARS * min(figure.ratio, LONGEST) / LONGEST)
    colour = COLOURS[figure.verdict.split(" ")[0]]
    parts = [
        _text(left - 10, y, _named(figure), anchor="end", size=11),
        f'<rect x="{left}" y="{y - 12}" width="{length:.1f}" height="16" fill="{colour}"/>',
    ]
    label = _label(figure)
    behind = length  # where the label starts
    if figure.target is not None:
        mark = BARS * min(figure.target.ratio, LONGEST) / LONGEST
        parts.append(f'<rect x="{left + mark - 1:.1f}" y="{y - 15}" width="2.5" height="22" fill="#000000"/>')
        if length - 4 < mark < length + 12 + LETTER * len(label):  # it would stand on the label
            behind = mark
    parts.append(_text(left + behind + 8, y, label, size=11))
    return parts


# --------------------------------------------------------------------------------------------- the curves

PLOT_HEIGHT, PLOT_LEFT, PLOT_RIGHT, PLOT_BOTTOM = 420, 90, 210, 60
#: Of several, each is less high.
ONE_OF_SEVERAL, BETWEEN = 150, 62
LABEL_HEIGHT = 17.0
LINE_COLOURS = ("#2f7d5b", "#7d8791", "#b5493a", "#1f2328")


def plot(curve: Curve, subtitle: str) -> str:
    """A line for each side; x in powers of ten or equal steps, y from nothing."""
    bottom = PLOT_HEIGHT - PLOT_BOTTOM
    return _picture(PLOT_HEIGHT, curve.title, subtitle, [*_axes(curve, TOP, bottom), _below(curve, bottom)])


def plots(picture: Picture) -> str:
    """Curves one above the other, each with its title, and what x is below the last."""
    body: list[str] = []
    bottom = TOP - BETWEEN + 24
    for curve in picture.curves:
        top = bottom + BETWEEN
        bottom = top + (ONE_OF_SEVERAL if len(picture.curves) > 1 else PLOT_HEIGHT - PLOT_BOTTOM - TOP)
        body += [_text(PLOT_LEFT, top - 14, curve.title, weight="bold"), *_axes(curve, top, bottom)]
    body.append(_below(picture.curves[-1], bottom))
    return _picture(bottom + PLOT_BOTTOM, picture.title, picture.subtitle, body)


def _below(curve: Curve, bottom: int) -> str:
    return _text((PLOT_LEFT + WIDTH - PLOT_RIGHT) / 2, bottom + PLOT_BOTTOM - 16, curve.x, anchor="middle")


def _axes(curve: Curve, top: int, bottom: int) -> list[str]:
    """The lines of a curve between two heights, their names, and what stands at the axes."""
    points = [point for line in curve.lines.values() for point in line]
    values = sorted({x for x, _ in points})
    scaled = (lambda x: x) if curve.steps else math.log10
    low, high = scaled(values[0]), scaled(values[-1])
    # Up to five lines at round values, the last above the highest point.
    highest = max(y for _, y in points) or 1
    power = 10 ** math.floor(math.log10(highest / 5))
    gap = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each * 5 >= highest)
    count = math.ceil(highest / gap)
    right = WIDTH - PLOT_RIGHT

    def at(x: float, y: float) -> tuple[float, float]:
        across = (scaled(x) - low) / ((high - low) or 1)
        return PLOT_LEFT + across * (right - PLOT_LEFT), bottom - y / (count * gap) * (bottom - top)

    body: list[str] = []
    for number in range(count + 1):
        _, y = at(values[0], number * gap)
        body.append(f'<line x1="{PLOT_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#d8dee4"/>')
        body.append(
            _text(PLOT_LEFT - 10, y + 4, amount(number * gap, curve.y) if number else "0", anchor="end", size=11)
        )
    ticks = curve.ticks or tuple(f"{value:g}" if curve.steps else f"{value:,.0f}" for value in values)
    for value, tick in zip(values, ticks, strict=True):
        x, y = at(value, 0)
        body.append(_text(x, y + 20, tick, anchor="middle", size=11))
    drawn = [[at(x, y) for x, y in sorted(line)] for line in curve.lines.values()]
    heights = apart([places[-1][1] for places in drawn], LABEL_HEIGHT)
    for colour, name, places, height in zip(LINE_COLOURS, curve.lines, drawn, heights, strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
        body.append(_text(places[-1][0] + 12, height + 4, name, fill=colour, weight="bold"))
    return body


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Heights moved upwards until any two of them are so far apart; where they are the same, the first is highest.

    >>> apart([100, 50, 100], 15)
    [85, 50, 100]
    """
    moved = list(heights)
    limit = math.inf
    for place in sorted(range(len(moved)), key=lambda place: (moved[place], place), reverse=True):
        moved[place] = min(moved[place], limit)
        limit = moved[place] - least
    return moved


def _text(
    x: float,
    y: float,
    text: str,
    *,
    weight: str = "normal",
    size: int = 13,
    anchor: str = "start",
    fill: str = "#1f2328",
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
        f' fill="{fill}">{escape(text)}</text>'
    )
