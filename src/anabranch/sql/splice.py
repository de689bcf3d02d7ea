"""Edits of a text by offset, and the mapping of spans in the edited text back to the original."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.sql.text import Span


@dataclass(frozen=True)
class Edit:
    """Replace the characters of `span` by `text`; `origin` is the span that the text came from, by default `span`."""

    span: Span
    text: str
    origin: Span | None = None


@dataclass(frozen=True)
class Spliced:
    """An edited text with the origin of each character."""

    text: str
    origins: tuple[tuple[int, int, int, int], ...]  # (start, end) here, (start, end) in the original

    def original(self, start: int, end: int) -> Span:
        """The original span of a span here; inside a replacement, all that was replaced."""
        first = last = None
        for here_start, here_end, there_start, there_end in self.origins:
            same_length = here_end - here_start == there_end - there_start
            if first is None and start < here_end:
                first = there_start + (start - here_start) if same_length else there_start
            if end <= here_end:
                last = there_start + (end - here_start) if same_length else there_end
                break
        if first is None:
            first = self.origins[-1][3] if self.origins else 0
        return Span(first, max(first + 1, last if last is not None else first + 1))


def splice(text: str, span: Span, edits: Iterable[Edit]) -> Spliced:
    """The text of `span` with the edits applied. Edits must be inside the span; one inside another is dropped.

    >>> splice("a + b", Span(0, 5), [Edit(Span(0, 1), "x"), Edit(Span(0, 0), "(")]).text
    '(x + b'
    """
    pieces: list[str] = []
    origins: list[tuple[int, int, int, int]] = []
    length = 0
    position = span.start

    def add(piece: str, start: int, end: int) -> None:
        nonlocal length
        if piece:
            origins.append((length, length + len(piece), start, end))
            pieces.append(piece)
            length += len(piece)

    for edit in sorted(edits, key=lambda e: (e.span.start, e.span.end != e.span.start, -e.span.end)):
        if edit.span.start < position:
            continue
        add(text[position : edit.span.start], position, edit.span.start)
        origin = edit.origin or edit.span
        add(edit.text, origin.start, origin.end)
        position = max(position, edit.span.end)
    add(text[position : span.end], position, span.end)
    return Spliced("".join(pieces), tuple(origins))
