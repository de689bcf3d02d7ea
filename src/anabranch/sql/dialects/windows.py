"""Windows in the notations of other systems, parsed into the windows of a relation.

    [RANGE 10 minutes, SLIDE 1 minute, WA ts]      Li: after an aggregate, or after an input of a join
    <VISIBLE '5 minutes' ADVANCE '1 minute'>       Truviso: after a stream
    'CUT ON ts BY 60 SECS'                         ECQ: in the call of STREAM, or after a stream

`selects` rewrites the rest of the SELECT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from anabranch.errors import problem
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import NUMBER, OPENING, STRING, SYMBOL, WORD, Token, tokenize
from anabranch.sql.syntax import Name, Relation
from anabranch.sql.table_functions import Call, refuse_keys, take_attribute
from anabranch.sql.text import Span
from anabranch.sql.window_arguments import WindowArgument, take_length, take_origin
from anabranch.sql.windows import windowed, word_argument

BRACKET_WORDS = ("RANGE", "SLIDE", "WA", "WATTR", "RATTR", "SATTR", "PA", "ORIGIN")
#: A row is stored once for each epoch that it is in.
MOST_CHUNKS = 10_000
#: Words that continue an expression after a column named range or slide.
_OPERATORS = frozenset(
    {"AND", "OR", "DIV", "BETWEEN", "IS", "IN", "NOT", "LIKE", "ILIKE", "RLIKE", "REGEXP", "COLLATE"}
)


@dataclass(frozen=True)
class Cut:
    """ECQ: how a stream is cut into chunks, and how many of them a join reads at a time."""

    length: WindowArgument | None  # of a chunk; None if a change of the key ends it
    filled: bool = False
    block: int = 1  # the number of newest chunks
    pairs: Literal["once", "every"] | None = None  # a pair is emitted once, or in every epoch
    span: Span = field(default_factory=lambda: Span(0, 0))  # of the notation


@dataclass(frozen=True)
class SpelledWindow:
    """The windows of a notation, as a window function over a relation."""

    span: Span  # of the notation
    function: str
    time: Name | None
    arguments: Mapping[str, WindowArgument]
    partition: tuple[Name, ...] = ()
    cut: Cut | None = None

    def over(self, text: str, relation: Relation) -> Relation:
        if self.partition and self.function in ("LANDMARK",):
            raise refuse_keys(text, self.function, self.partition[0].span, "PARTITION BY")
        call = Call(self.span, relation, self.time, self.partition, self.arguments)
        made = windowed(text, self.function, call, relation.join)
        return replace(made, span=relation.span, spelled=None)

    def same_as(self, other: SpelledWindow) -> bool:
        mine, others = ({name: each.value for name, each in one.arguments.items()} for one in (self, other))
        names = [[part.lower() for name in (one.time, *one.partition) if name for part in name.parts[-1:]]
                 for one in (self, other)]  # fmt: skip
        return self.function == other.function and mine == others and names[0] == names[1]


# ---- Li


def at_bracket(tokens: Sequence[Token], index: int) -> bool:
    """Whether the bracket at `index` holds a window; arr[0] and arr[range + 1] do not."""
    if tokens[index].text != "[" or tokens[index].kind != SYMBOL or index + 2 >= len(tokens):
        return False
    word, following = tokens[index + 1], tokens[index + 2]
    if word.upper not in BRACKET_WORDS:
        return False
    if following.text == "-" and index + 4 < len(tokens):  # a negative length, refused later
        behind = tokens[index + 4]
        return tokens[index + 3].kind == NUMBER and behind.kind == WORD and behind.upper not in _OPERATORS
    return following.kind in (WORD, NUMBER, STRING) and following.upper not in _OPERATORS


def has_brackets(cursor: Cursor) -> bool:
    """Whether a statement has windows in brackets: then it may use Li's other keywords too."""
    return any(at_bracket(cursor.tokens, index) for index in range(len(cursor.tokens)))


@dataclass
class Bracket:
    """The parameters of a bracket."""

    span: Span
    range: WindowArgument | Literal["all"] | None = None
    tumbling: bool = False
    open: bool = False  # the bounds of a join are strict
    slide: WindowArgument | None = None
    attribute: Name | None = None
    partition: list[Name] = field(default_factory=list)
    origin: WindowArgument | None = None
    range_attribute: Name | None = None
    slide_attribute: Name | None = None
    rank: bool = False
    seen: dict[str, Span] = field(default_factory=dict)  # parameters and their spans


def take_bracket(cursor: Cursor) -> Bracket:
    """[RANGE ..., SLIDE ..., WA ...]: parameters in any order."""
    start = cursor.expect("[").start
    found = Bracket(Span(start, start + 1))
    while True:
        word = cursor.current
        name = "WA" if word.upper == "WATTR" else word.upper
        if name not in (*BRACKET_WORDS, "OPEN"):
            expected = ", ".join(each for each in BRACKET_WORDS if each != "WATTR")
            raise cursor.problem(f"expected {expected} or OPEN", known=(*BRACKET_WORDS, "OPEN"))
        if name in found.seen:
            raise problem(cursor.text, word.span, f"{word.upper} is given twice")
        cursor.advance()
        _parameter(cursor, found, name)
        found.seen[name] = Span(word.start, cursor.previous.end)
        if cursor.take("]"):
            break
        cursor.expect(",")
    found.span = Span(start, cursor.previous.end)
    return found


def _parameter(cursor: Cursor, found: Bracket, name: str) -> None:
    if name == "RANGE":
        if cursor.take("ALL"):
            found.range = "all"
            return
        found.tumbling = cursor.take("TUMBLING")
        found.range = take_length(cursor, "the RANGE of the window")
        found.open = cursor.take("OPEN") or found.open
    elif name == "SLIDE":
        found.slide = take_length(cursor, "the SLIDE of the window")
    elif name == "WA":
        found.attribute = take_attribute(cursor)
    elif name == "PA":
        bracket = cursor.take("(")
        found.partition.append(cursor.dotted_name("a column"))
        while cursor.at(",") and cursor.ahead(1).is_name and cursor.ahead(2).text in (",", "]", ")", "."):
            cursor.advance()
            found.partition.append(cursor.dotted_name("a column"))
        if bracket:
            cursor.expect(")")
    elif name == "ORIGIN":
        found.origin = take_origin(cursor)
    elif name == "RATTR":
        found.range_attribute = take_attribute(cursor)
    elif name == "SATTR":
        found.rank = cursor.take("RANK", "(")
        found.slide_attribute = take_attribute(cursor)
        if found.rank:
            cursor.expect(")")
    else:
        found.open = True


def aggregate_window(text: str, found: Bracket) -> SpelledWindow:
    """The windows of a bracket after an aggregate."""
    if found.range is None:
        raise problem(text, found.span, "this window has no RANGE", "as in [RANGE 10 MINUTES, SLIDE 1 MINUTE, WA ts]")
    if found.tumbling or found.open:
        span = found.seen.get("OPEN", found.seen["RANGE"])
        what = "TUMBLING" if found.tumbling else "OPEN"
        hint = "windows of an aggregate tumble when SLIDE is as long as RANGE" if found.tumbling else None
        raise problem(text, span, f"{what} is for the inputs of a join", hint)
    if found.slide is None:
        raise problem(text, found.span, "this window has no SLIDE", "as in [RANGE 10 MINUTES, SLIDE 1 MINUTE, WA ts]")
    if found.range_attribute is not None or found.slide_attribute is not None:
        return _by_row(text, found, found.range, found.slide)
    time = found.attribute
    if time is None and found.slide.unit == "rows":
        time = Name(("row_num",), found.slide.span)
    if found.range != "all" and (found.range.unit == "time") != (found.slide.unit == "time"):
        raise problem(
            text,
            found.slide.span,
            "RANGE and SLIDE are both lengths of time, or both numbers",
            "RATTR and SATTR are for a RANGE along one attribute and a SLIDE along another",
        )
    arguments = {"slide": found.slide}
    if found.range != "all":
        arguments["size"] = found.range
    if found.origin is not None:
        arguments["origin"] = found.origin
    partition = tuple(Name(name.parts[-1:], name.span) for name in found.partition)
    function = "LANDMARK" if found.range == "all" else "SLIDING"
    return SpelledWindow(found.span, function, time, arguments, partition)


def _by_row(text: str, found: Bracket, size: WindowArgument | Literal["all"], slide: WindowArgument) -> SpelledWindow:
    """RATTR and SATTR: a RANGE over one attribute, a SLIDE by rows."""
    along, by = found.range_attribute, found.slide_attribute
    if along is None or by is None:
        span = found.seen["SATTR" if along is None else "RATTR"]
        raise problem(text, span, "RATTR and SATTR go together", "as in RATTR ts, SLIDE 1 ROW, SATTR row-num")
    for other in ("WA", "PA", "ORIGIN"):
        if other in found.seen:
            raise problem(text, found.seen[other], f"{other} does not go with RATTR and SATTR")
    if size == "all":
        raise problem(text, found.seen["RANGE"], "RANGE ALL does not go with RATTR and SATTR", "use WA")
    if found.rank and by.last.lower() != along.last.lower():
        raise problem(text, by.span, f"windows move by the rank of {along.last}, the column of the RANGE")
    if not found.rank and by.last.lower().replace("-", "_") != "row_num":
        raise problem(text, by.span, "SATTR is ROW_NUM or rank(column)", f"as in SATTR rank({along.last})")
    if slide.unit == "time":
        raise problem(text, slide.span, "with SATTR windows move by rows", "as in SLIDE 5 ROWS")
    arguments = {"size": size, "every": replace(slide, unit="rows")}
    if found.rank:
        arguments["by"] = word_argument("by", "rank", found.seen["SATTR"])
    return SpelledWindow(found.span, "SLIDE_BY_ROW", along, arguments)


# ---- Truviso


def at_visible(tokens: Sequence[Token], index: int) -> bool:
    """Whether the < at `index` opens a window; `a < visible` does not."""
    if tokens[index].text != "<" or index + 2 >= len(tokens):
        return False
    word, following = tokens[index + 1], tokens[index + 2]
    return word.upper in ("VISIBLE", "SLICES") and (following.kind in (STRING, NUMBER) or following.upper == "INTERVAL")


def take_visible(cursor: Cursor) -> SpelledWindow:
    """<VISIBLE '5 minutes' ADVANCE '1 minute'> or <SLICES '1 minute'>"""
    start = cursor.expect("<").start
    word = cursor.advance().upper
    size = slide = take_length(cursor, f"what is {word}" if word == "VISIBLE" else "the length of the SLICES")
    if word == "VISIBLE" and cursor.take("ADVANCE"):
        slide = take_length(cursor, "the ADVANCE of the window")
    cursor.expect(">")
    span = Span(start, cursor.previous.end)
    time = Name(("row_num",), span) if slide.unit == "rows" else None
    return SpelledWindow(span, "SLIDING", time, {"slide": slide, "size": size})


# ---- ECQ


def at_stream(cursor: Cursor) -> bool:
    """STREAM(...), or STREAM_name(...) with the cut as its second argument."""
    token = cursor.current
    if token.kind != WORD or cursor.ahead(1).text != "(" or not token.upper.startswith("STREAM"):
        return False
    if token.upper == "STREAM" or not token.upper.startswith("STREAM_"):
        return token.upper == "STREAM"
    look = Cursor(cursor.text, cursor.tokens, cursor.index + 2)
    while not look.at_end and not look.at(",") and not look.at(")"):
        if look.advance().text in OPENING:
            look.close_bracket()
    second = look.ahead(1)
    return look.at(",") and second.kind == STRING and second.value.upper().split()[:1] == ["CUT"]


def at_cut(cursor: Cursor) -> bool:
    """Whether chunks are cut here: CUT BY n ROWS, CUT ON name BY, CUT ON name CHANGE. JOIN t cut ON ... is an alias."""
    if cursor.at("CUT", "BY"):
        return cursor.ahead(2).kind in (NUMBER, STRING) or cursor.ahead(2).text in ("-", "INTERVAL")
    if not cursor.at("CUT", "ON"):
        return False
    distance = 2
    while cursor.ahead(distance).is_name and cursor.ahead(distance + 1).text in (".", "-"):
        distance += 2
    return cursor.ahead(distance).is_name and cursor.ahead(distance + 1).upper in ("BY", "CHANGE")


def take_cut(cursor: Cursor) -> SpelledWindow:
    """CUT ON ts BY 60 SECS, CUT BY 1000 ROWS or CUT ON id CHANGE, then EMPTY FILLED or SKIPPED."""
    start = cursor.expect("CUT").start
    column: Name | None = None
    if cursor.take("ON"):
        column = take_attribute(cursor)
    changes = column is not None and (cursor.take("CHANGE") or cursor.take("BY", "OBJECT"))
    argument: WindowArgument | None = None
    if not changes:
        cursor.expect("BY")
        argument = take_length(cursor, "the length of the chunks")
    cursor.take("EMPTY")
    option = cursor.current
    filled = cursor.take("FILLED")
    if not filled and not cursor.take("SKIPPED") and cursor.previous.upper == "EMPTY":
        raise cursor.problem("expected FILLED or SKIPPED", known=("FILLED", "SKIPPED"))
    span = Span(start, cursor.previous.end)
    if argument is None:
        assert column is not None
        if filled:
            raise problem(cursor.text, option.span, "between chunks of one value there are no empty ones")
        return SpelledWindow(span, "CHUNKS", column, {}, cut=Cut(None))
    if column is None and argument.unit == "time":
        hint = f"as in CUT ON ts BY {argument.span.of(cursor.text)}"
        raise problem(cursor.text, argument.span, "chunks of a length of time are cut ON a column", hint)
    arguments = {"size": argument, **({"filled": word_argument("filled", "true", option.span)} if filled else {})}
    return SpelledWindow(span, "TUMBLE", column or Name(("row_num",), span), arguments, cut=Cut(argument, filled))


def take_cut_string(cursor: Cursor) -> SpelledWindow:
    """The same in quotes, then BLOCK, the number of chunks and their pairing, up to the closing bracket."""
    token = cursor.expect_string("how the stream is cut, as in 'CUT ON ts BY 60 SECS',")
    first = token.start + 1
    # Without escapes, offsets in the string are offsets in the text, so an error can point at its word.
    body = token.text[1:-1] if token.text[1:-1] == token.value else ""
    inner = [replace(each, start=each.start + first, end=each.end + first) for each in tokenize(body)]
    inside = Cursor(cursor.text, inner)
    call = take_cut(inside)
    inside.expect_end(("FILLED", "SKIPPED", "CHANGE"))
    cut = call.cut
    assert cut is not None
    if cursor.take(","):
        word = cursor.expect_string("'BLOCK'")
        if word.value.strip().upper() != "BLOCK":
            raise problem(cursor.text, word.span, "expected 'BLOCK'")
        if cursor.take(","):
            cut = _take_block(cursor, cut)
    cursor.expect(")")
    return replace(call, cut=cut)


def _take_block(cursor: Cursor, cut: Cut) -> Cut:
    """The number of chunks kept, and 'ONCE' or 'EVERY EPOCH'."""
    number = cursor.current
    block = cursor.expect_whole_number("how many chunks are kept")
    if block < 1:
        raise problem(cursor.text, number.span, "at least 1 chunk is kept: the current one")
    if block > MOST_CHUNKS:
        raise problem(cursor.text, number.span, f"at most {MOST_CHUNKS} chunks are kept", "cut longer ones")
    cut = replace(cut, block=block, span=number.span)
    if cursor.take(","):
        word = cursor.expect_string("'ONCE' or 'EVERY EPOCH'")
        said = " ".join(word.value.upper().split())
        if said not in ("ONCE", "EVERY EPOCH"):
            raise problem(cursor.text, word.span, "a pair of chunks is emitted 'ONCE', or in 'EVERY EPOCH' that has it")
        cut = replace(cut, pairs="once" if said == "ONCE" else "every", span=word.span)
    return cut
