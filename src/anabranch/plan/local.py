"""The part of Spark SQL that means the same in DuckDB, so that small changes need no Spark job.

A text of it is made of columns, whole numbers, texts, comparisons, AND, OR, NOT, + and -, joins, grouping, plain
aggregates, row numbers and what bounds of windows are computed by. Whatever else stands in a query leaves it to Spark.
Names keep their quotes, texts their characters; nothing else is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from anabranch.duck import WHOLE, quoted
from anabranch.plan.catalog import Field
from anabranch.plan.driver_types import fits_driver
from anabranch.plan.views import duckdb_type
from anabranch.sql.calls import CLOCK, closing, split_commas
from anabranch.sql.lexer import NUMBER, QUOTED, STRING, WORD, Token, tokenize, words

_KEYWORDS = {
    word.upper()
    for word in words(
        """select distinct all from where group by having as and or not between is null in on using join inner left
        right full outer cross semi anti over partition order asc desc nulls first last rows range unbounded preceding
        following current row union case when then else end true false interval second seconds minute minutes hour
        hours day days with intersect except exists limit filter"""
    )
}
_CALLS = words(
    """count sum avg min max row_number rank dense_rank lead lag coalesce __rows unix_micros timestamp_micros pmod"""
)
_AGGREGATES = words("sum min max count")
_SYMBOLS = frozenset({"(", ")", ",", ".", "=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "=="})
#: Words that begin something that only looks like a name.
_TYPED = words("timestamp date timestamp_ntz timestamp_ltz time array map struct named_struct decimal")


def local_text(
    text: str, relation: Callable[[str], str | None], fields: Iterable[Field], *, before: str = "", behind: str = ""
) -> str | None:
    """The text for DuckDB, or None. `relation` gives what to write for a placeholder; `fields` are the columns of all
    relations that the text names. Of a part of a query, `before` and `behind` are the rest of it."""
    return _filled(_pieces(text, None), relation) if fits_driver(text, fields, before, behind) else None


def own_text(text: str, relation: Callable[[str], str | None], also: Also) -> str | None:
    """The same for a text of Anabranch's own around a user's that has been asked about already: `also` knows what it
    may have in it beside what a user may write."""
    return _filled(_pieces(text, also), relation)


def shares_words(text: str) -> bool:
    """Whether a text has only words that mean the same in DuckDB; their types may still decide otherwise."""
    return _pieces(text, None) is not None


@dataclass(frozen=True)
class Placeholder:
    """A place in a text that something is written into."""

    name: str


#: A text for DuckDB in pieces, or None.
Pieces = tuple[str | Placeholder, ...] | None
#: For the tokens from an index on: pieces, and the index behind what they stand for; None for nothing else.
Also = Callable[[Sequence[Token], int], tuple[Sequence[str | Placeholder], int] | None]


def _filled(pieces: Pieces, relation: Callable[[str], str | None]) -> str | None:
    """Pieces as one text, with something in place of each placeholder."""
    if pieces is None:
        return None
    written = []
    for piece in pieces:
        found = relation(piece.name) if isinstance(piece, Placeholder) else piece
        if found is None:
            return None
        written.append(found)
    return " ".join(written)


@lru_cache(maxsize=1024)
def _pieces(text: str, also: Also | None) -> Pieces:
    """The text for DuckDB in pieces, or None. A view is asked for run after run, so that it is read once."""
    return split(tokenize(text)[:-1], also)


def split(tokens: Sequence[Token], also: Also | None = None) -> Pieces:
    """The same for some tokens of a text."""
    pieces: list[str | Placeholder] = []
    opened = [0]  # where the pieces of each parenthesis that is open begin
    index = 0
    while index < len(tokens):
        token = tokens[index]
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        more = also(tokens, index) if also is not None else None
        if more is not None:
            pieces += more[0]
            index = more[1]
            continue
        if token.upper == "CAST" and following == "(":
            inside = _plain_cast(tokens, index) or _time(tokens, index)
            if inside is None:
                return None
            pieces.append(inside)
            index = closing(tokens, index + 1) + 1
            continue
        if token.upper in ("SUM", "AVG") and following == "(":
            end = closing(tokens, index + 1) + 1
            if [each.upper for each in tokens[end : end + 2]] == ["FILTER", "("]:
                end = closing(tokens, end + 1) + 1
            total = _total(tokens[index:end], tokens[end].upper if end < len(tokens) else "", also)
            if total is None:
                return None
            pieces += total
            index = end
            continue
        if token.upper == "LATERAL" and following.upper() == "VIEW":
            starts, copies = _windows(tokens, index), _copies(tokens[index : index + 14])
            if starts is not None:
                pieces[opened[-1] :] = starts.among(pieces[opened[-1] :])
            elif copies is not None:
                pieces.append(copies)
            else:
                return None
            index = closing(tokens, index + 3) + 4
            continue
        if token.upper == "LATERAL":
            found = _matches(tokens[index : index + 7])
            if found is None:
                return None
            pieces.append(found)
            index += 7
            continue
        if token.upper == "LEFT" and following.upper() in ("SEMI", "ANTI"):  # DuckDB has no other
            index += 1
            continue
        piece = _piece(tokens, index, following)
        if piece is None:
            return None
        pieces.append(piece)
        if token.text == "(":
            opened.append(len(pieces))
        elif token.text == ")" and len(opened) > 1:
            opened.pop()
        index += 1
    return tuple(pieces)


def _total(tokens: Sequence[Token], following: str, also: Also | None) -> Pieces:
    """A sum or an average. Of whole numbers, Spark adds up the one as BIGINT and the other as DOUBLE, and DuckDB both
    with more digits."""
    end = closing(tokens, 1)
    inside, chosen = split(tokens[2:end], also), split(tokens[end + 1 :], also)
    if inside is None or chosen is None:
        return None
    if tokens[0].upper == "AVG" and tokens[2].upper == "DISTINCT":
        return ("avg (", *inside, ")", *chosen)
    if tokens[0].upper == "AVG":
        return ("avg ( CAST (", *inside, "AS DOUBLE ) )", *chosen)
    summed = ("sum (", *inside, ")", *chosen)
    return summed if following == "OVER" else ("__total (", *summed, ")")


def _piece(tokens: Sequence[Token], index: int, following: str) -> str | Placeholder | None:
    token = tokens[index]
    if token.upper == "EXCEPT" and following == "(" and index and tokens[index - 1].text == "*":
        return "EXCLUDE" if tokens[index + 2].upper not in ("SELECT", "WITH", "(") else token.text
    if token.kind == QUOTED:
        return Placeholder(token.name) if token.name.startswith("@") else quoted(token.name)
    if token.kind == STRING:
        return None if token.text[0] in "rRxX" else "'" + token.value.replace("'", "''") + "'"
    if token.kind == NUMBER:
        return token.text if token.text.isdigit() and int(token.text) < 2**63 else None
    if token.upper == "PMOD" and following == "(" and not _by_positive(tokens, index):
        return None
    if token.kind == WORD:
        return _word(token, following)
    if token.text == "==":
        return "="
    return token.text if token.text in _SYMBOLS else None


#: What texts for Spark call the start of a window, and the columns of a row, in pieces of a text for DuckDB.
_START, _COLUMNS = ['"__starts"', ".", '"start"'], ['"__rows"', ".", "*"]


@dataclass(frozen=True)
class _Starts:
    """The windows of a row: what to join for them, what then is the start of one, and what that is computed from."""

    joined: str
    start: str
    last: str | None = None

    def among(self, pieces: Sequence[str | Placeholder]) -> list[str | Placeholder]:
        """The pieces of a SELECT whose rows are put into windows."""
        written: list[str | Placeholder] = []
        for piece in pieces:
            written.append(piece)
            if written[-3:] == _START:
                written[-3:] = [self.start]
        if self.last is None:
            return [*written, self.joined]
        # Before the join: once a row, not once a window of it.
        head, source = written[:-2], list[str | Placeholder]()
        while head and not (head[-1] == "FROM" and source.count("(") == source.count(")")):
            source.insert(0, head.pop())
        rows = ["( SELECT * ,", f'{self.last} AS "__last" FROM', *source, 'AS "__rows" ) AS "__rows"']
        return [*_without_last(head), *rows, self.joined]


def _without_last(pieces: Sequence[str | Placeholder]) -> list[str | Placeholder]:
    """What is selected of rows, but not what their windows are computed from."""
    written: list[str | Placeholder] = []
    for index, piece in enumerate(pieces):
        written.append(piece)
        if written[-3:] == _COLUMNS and list(pieces[index + 1 : index + 2]) != ["EXCLUDE"]:
            written.append('EXCLUDE ( "__last" )')
        elif written[-5:] == [*_COLUMNS, "EXCLUDE", "("]:
            written.append('"__last" ,')
    return written


def _windows(tokens: Sequence[Token], index: int) -> _Starts | None:
    """LATERAL VIEW explode(sequence(first, last, CAST(slide AS BIGINT))) __starts AS start: the windows of a row.

    Only as it is written for sliding windows: there the last window is never before the first.
    """
    end = closing(tokens, index + 3) if len(tokens) > index + 5 else len(tokens)
    texts = [token.text for token in tokens[index : end + 4]]
    if texts[2:6] != ["explode", "(", "sequence", "("] or texts[-4:] != [")", "__starts", "AS", "start"]:
        return None
    bounds = list(split_commas(tokens[index + 6 : end - 1]))
    slide = [token.text for token in bounds[-1]]
    if len(bounds) != 3 or [*slide[:2], *slide[3:]] != ["CAST", "(", "AS", "BIGINT", ")"]:
        return None
    first, last = (_filled(split(bound), lambda _: None) for bound in bounds[:2])
    if first is None or last is None:
        return None
    reach = _reach(bounds[0], slide[2])
    if reach is not None and [token.text for token in tokens[index - 2 : index]] == ["AS", "__rows"]:
        return _numbered(*reach, last, int(slide[2]))
    listed = f"SELECT unnest(range({first}, {last} + 1, {slide[2]})) AS start"
    return _Starts(f', LATERAL ({listed}) AS "__starts"', "".join(_START))


def _reach(first: Sequence[Token], slide: str) -> tuple[str, int] | None:
    """What windows lie along, and how far before it one may start.

    From `(value - far + pmod(number - (value - far), slide))`, the start of the first window.
    """
    texts = [token.text for token in first]
    plus = next((i for i, text in enumerate(texts) if text == "+" and texts[i + 1 : i + 2] == ["pmod"]), 0)
    lowest = texts[1:plus]
    if len(lowest) < 3 or lowest[-2] != "-" or not lowest[-1].isdigit() or not slide.isdigit() or int(slide) == 0:
        return None
    number = texts[plus + 3 : plus + 4]
    if texts != ["(", *lowest, "+", "pmod", "(", *number, "-", "(", *lowest, ")", ",", slide, ")", ")"]:
        return None
    value = _filled(split(first[1 : plus - 2]), lambda _: None)
    return None if value is None or not "".join(number).isdigit() else (value, int(lowest[-1]))


def _numbered(value: str, far: int, last: str, slide: int) -> _Starts:
    """The windows of a row by a join with numbers: DuckDB has them at half the price of lists of starts.

    They are as many as there are starts from `value - far` to `value`. If the slide divides the size, each row has as
    many; otherwise the earliest may be one too many.
    """
    start = f'("__rows"."__last" - "__starts"."__back" * {slide})'
    wanted = '"__rows"."__last" IS NOT NULL' if (far + 1) % slide == 0 else f"{start} >= {value} - {far}"
    return _Starts(f'JOIN range({far // slide + 1}) AS "__starts"("__back") ON {wanted}', start, last)


def _by_positive(tokens: Sequence[Token], index: int) -> bool:
    """Whether a remainder is one of a division by a number above 0."""
    comma, divisor = tokens[closing(tokens, index + 1) - 2 :][:2]
    return comma.text == "," and divisor.text.isdigit() and int(divisor.text) > 0


def _copies(tokens: Sequence[Token]) -> str | None:
    """LATERAL VIEW explode(sequence(1, n)) __copies AS __copy: a row as often as it counts, if that is more than 0."""
    texts = [token.text for token in tokens]
    called = ["LATERAL", "VIEW", "explode", "(", "sequence", "(", "1", ","]
    if texts[:8] != called or texts[9:] != [")", ")", "__copies", "AS", "__copy"] or not tokens[8].is_name:
        return None
    return f', LATERAL (SELECT unnest(range(0, {quoted(tokens[8].name)})) AS "__copy") AS "__copies"'


def _matches(tokens: Sequence[Token]) -> str | None:
    """LATERAL inline(`o`.`list`): the rows in a list, as the matches of lookups are kept."""
    texts = [token.text for token in tokens]
    if texts[1:3] != ["inline", "("] or texts[4] != "." or texts[6:] != [")"]:
        return None
    return f"LATERAL (SELECT unnest({quoted(tokens[3].name)}.{quoted(tokens[5].name)}, recursive := true))"


def _word(token: Token, following: str) -> str | None:
    if token.upper in _KEYWORDS:
        return token.text
    if following == "(":
        return token.text if token.text.lower() in _CALLS else None
    if token.text.lower() in _TYPED | CLOCK or following.startswith(("'", '"')):
        return None
    return quoted(token.name)


def _time(tokens: Sequence[Token], index: int) -> str | None:
    """A column as a time in `unix_micros(CAST(ts AS TIMESTAMP))`: of what is none, DuckDB has no microseconds."""
    end = closing(tokens, index + 1)
    inner, kind = tokens[index + 2 : end - 2], [token.upper for token in tokens[end - 2 : end]]
    before = "".join(token.text.lower() for token in tokens[max(0, index - 2) : index])
    if before != "unix_micros(" or kind != ["AS", "TIMESTAMP"]:
        return None
    if not all(
        token.kind in (WORD, QUOTED) if place % 2 == 0 else token.text == "." for place, token in enumerate(inner)
    ):
        return None
    return ".".join(quoted(token.name) for token in inner[::2])


def _plain_cast(tokens: Sequence[Token], index: int) -> str | None:
    """A cast around an aggregate, as the finals of partials have it: it changes the width of a number only; or of NULL
    and of a whole number, which say of what type a constant is."""
    end = closing(tokens, index + 1)
    as_index = next((i for i in range(end - 1, index, -1) if tokens[i].upper == "AS"), None)
    if as_index is None:
        return None
    kind = duckdb_type("".join(token.text.lower() for token in tokens[as_index + 1 : end]))
    inside = tokens[index + 2 : as_index]
    if kind is not None and len(inside) == 1:
        constant = inside[0].upper == "NULL" or (
            inside[0].text.isdigit() and int(inside[0].text) < 128 and kind in WHOLE
        )
        return f"CAST({inside[0].text} AS {kind})" if constant else None
    text = _aggregated(inside)
    return None if kind is None or text is None else _widened(text, kind)


def _aggregated(tokens: Sequence[Token]) -> str | None:
    """One aggregate; or a cast around one, or a number in place of its NULL."""
    if len(tokens) < 3 or tokens[1].text != "(" or closing(tokens, 1) != len(tokens) - 1:
        return None
    if tokens[0].upper == "CAST":
        return _plain_cast(tokens, 0)
    if tokens[0].upper == "COALESCE":
        values = list(split_commas(tokens[2:-1]))
        text = _aggregated(values[0]) if len(values) == 2 and len(values[1]) == 1 else None
        return f"coalesce({text}, {values[1][0].text})" if text and values[1][0].text.isdigit() else None
    if tokens[0].text.lower() not in _AGGREGATES:
        return None
    behind = [*(token.text for token in tokens[1:]), ""]
    parts = [_piece(tokens, i, behind[i]) for i in range(len(tokens))]
    written = [part for part in parts if isinstance(part, str)]
    return " ".join(written) if len(written) == len(parts) else None


def _widened(text: str, kind: str) -> str:
    """A value in another width of its type; of another type, DuckDB would not make of it what Spark does."""
    if kind in WHOLE:
        text = f"__whole({text})"
    elif kind.startswith("DECIMAL"):
        text = f"__scaled({text}, {kind.rpartition(',')[2][:-1]})"
    else:
        text = f"__same({text}, CAST(NULL AS {kind}))"
    return f"CAST({text} AS {kind})"
