"""Text tables: aligned columns for terminals and files. Knows only cells."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from anabranch.cli.values import NULL

#: The minimum width of a column, even on a narrow terminal.
NARROWEST = 6
#: Categories of characters that combine with the previous one: accents, joiners, marks of direction.
_NO_WIDTH = ("Mn", "Me", "Cf")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def clean(text: str) -> str:
    """A cell on one line, without control characters."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else _ESCAPES.get(c, f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
        for c in text
    )


def width(text: str) -> int:
    """The width of a text on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(c) in _NO_WIDTH else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def cut(text: str, limit: int) -> str:
    """A text in at most `limit` columns, with a mark where it is cut."""
    if width(text) <= limit:
        return text
    kept, used = [], 0
    for c in text:
        used += width(c)
        if used > limit - 1:
            break
        kept.append(c)
    return "".join(kept) + "…"


def pad(text: str, to: int, right: bool) -> str:
    """A text padded to a width, aligned to the right or to the left."""
    blanks = " " * (to - width(text))
    return blanks + text if right else text + blanks


def fit(widths: Sequence[int], limit: int) -> list[int]:
    """Shrink the widest columns until the table fits in `limit` columns, as far as that is possible.

    >>> fit([4, 50, 10], 40)
    [4, 20, 10]
    """
    fitted = list(widths)
    borders = 3 * (len(fitted) - 1)
    excess = sum(fitted) + borders - limit
    while excess > 0:
        widest = max(fitted)
        if widest <= NARROWEST:
            break
        at_widest = [i for i, w in enumerate(fitted) if w == widest]
        next_widest = max((w for w in fitted if w < widest), default=NARROWEST)
        step = min(widest - max(next_widest, NARROWEST), -(-excess // len(at_widest)))
        for i in at_widest:
            taken = min(step, excess)
            fitted[i] -= taken
            excess -= taken
            if excess <= 0:
                break
    return fitted


def lines(
    header: Sequence[str],
    columns: Sequence[Iterable[str | None]],
    right: Sequence[bool],
    limit: int | None = None,
) -> Iterator[str]:
    """The lines of a table: header, rule, rows. `limit` is the maximum width; None: unlimited."""
    cells = [[NULL if text is None else clean(text) for text in column] for column in columns]
    names = [clean(name) for name in header]
    widths = [max([width(name), *map(width, column)]) for name, column in zip(names, cells, strict=True)]
    if limit is not None:
        widths = fit(widths, limit)
    yield _line(names, widths, [False] * len(names))
    yield "-+-".join("-" * w for w in widths)
    for row in zip(*cells, strict=True):
        yield _line(row, widths, right)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [pad(cut(c, w), w, r) for c, w, r in zip(cells, widths, right, strict=True)]
    return " | ".join(padded).rstrip()


def count_line(rows: int) -> str:
    return "(1 row)" if rows == 1 else f"({rows} rows)"
