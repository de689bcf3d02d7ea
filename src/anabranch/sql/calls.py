"""Find the calls of aggregates, the qualified names and the nondeterministic calls in an expression.

Works on tokens; the rest of the expression remains the user's text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.sql.lexer import CLOSING, OPENING, STRING, Token
from anabranch.sql.own_aggregates import OWN_AGGREGATES
from anabranch.sql.spelling import normal_form
from anabranch.sql.text import Span, words

#: Every aggregate of Spark 4.3; those without a mergeable form are recomputed over kept rows.
SPARK_AGGREGATES = words(
    """any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg avg bit_and bit_or bit_xor bitmap_construct_agg bitmap_or_agg bitmap_and_agg bool_and bool_or
    collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
    grouping_id histogram_numeric hll_sketch_agg hll_union_agg kurtosis last last_value listagg max max_by mean median
    min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp
    string_agg sum theta_sketch_agg theta_union_agg theta_intersection_agg try_avg try_sum var_pop var_samp variance
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float"""
)
AGGREGATES = SPARK_AGGREGATES | OWN_AGGREGATES.keys()
#: Functions whose value is random or depends on the position of a row: a view of them has no batch answer.
VOLATILE = words(
    """rand random randn randstr uniform uuid shuffle input_file_name input_file_block_start input_file_block_length
    monotonically_increasing_id spark_partition_id"""
)
#: Functions of the session: its user is not in the rows, and another session may have another user.
SESSION = words("current_user user session_user")
#: Functions of the clock: the answer of a view of them changes with time.
CLOCK = words("now current_timestamp current_date curdate localtimestamp current_time unix_timestamp")
#: Functions that make several rows from one.
GENERATORS = words(
    """explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode
    variant_explode_outer"""
)
#: Aggregates that ignore NULLs unless RESPECT NULLS is given; others need IGNORE NULLS.
_WITHOUT_NULLS = words("collect_list array_agg collect_set")
_WITHOUT_BRACKETS = frozenset({"current_timestamp", "current_date", "localtimestamp", "current_time"})
#: Functions of the session without brackets. `user` is not among them: it may be a column.
_BARE_SESSION = SESSION - {"user"}
#: Literals that denote the current time, and the functions that read them.
MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(?:\s+(\S+))?\s*", re.IGNORECASE)
_TIMES = {"timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz", "date": "date"}
_TO_TIMES = {
    **{name: _TIMES[name] for name in ("timestamp", "date")},
    **dict.fromkeys(("to_timestamp", "try_to_timestamp", "to_timestamp_ltz"), "timestamp"),
    **dict.fromkeys(("to_date", "try_to_date"), "date"),
    "to_timestamp_ntz": "timestamp_ntz",
}


@dataclass(frozen=True)
class Call:
    """A call of an aggregate, with its FILTER clause."""

    name: str
    span: Span
    name_span: Span
    distinct: bool
    arguments: tuple[tuple[Token, ...], ...]  # none for *
    condition: tuple[Token, ...] | None
    order: tuple[Token, ...] = ()  # of WITHIN GROUP

    @property
    def key(self) -> str:
        """Equal for equivalent calls."""
        arguments = ", ".join(normal_form(argument) for argument in self.arguments)
        order = " " + normal_form(self.order) if self.order else ""
        condition = "" if self.condition is None else " filter " + normal_form(self.condition)
        return f"{self.name}({'distinct ' if self.distinct else ''}{arguments or '*'}){order}{condition}"


def closing(tokens: Sequence[Token], opening: int) -> int:
    """The index of the bracket that closes the one at `opening`."""
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].text in OPENING and tokens[index].kind == "symbol":
            depth += 1
        elif tokens[index].text in CLOSING and tokens[index].kind == "symbol":
            depth -= 1
            if depth == 0:
                return index
    return len(tokens) - 1


def aggregate_calls(tokens: Sequence[Token]) -> Iterator[Call]:
    """The outermost aggregate calls of an expression, outside window functions (OVER) and subqueries."""
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.text == "(" and index + 1 < len(tokens) and tokens[index + 1].upper in ("SELECT", "WITH"):
            index = closing(tokens, index) + 1
            continue
        is_call = (
            token.kind == "word"
            and token.text.lower() in AGGREGATES
            and index + 1 < len(tokens)
            and tokens[index + 1].text == "("
            and (index == 0 or tokens[index - 1].text != ".")
        )
        if not is_call:
            index += 1
            continue
        end = closing(tokens, index + 1)
        last, order, condition, nulls = _behind(tokens, end)
        if _word(tokens, last + 1) == "OVER":
            index += 2  # a window function; its arguments may hold aggregates
            continue
        inside = list(tokens[index + 2 : end])
        distinct = bool(inside) and inside[0].upper == "DISTINCT"
        if distinct or (inside and inside[0].upper == "ALL"):
            inside = inside[1:]
        star = len(inside) == 1 and inside[0].text == "*"
        arguments = () if star else tuple(tuple(part) for part in split_commas(inside))
        name = token.text.lower() + (" within group" if order else "")
        if nulls and nulls != ("ignore" if token.text.lower() in _WITHOUT_NULLS else "respect"):
            name += f" {nulls} nulls"
        span = Span(token.start, tokens[last].end)
        yield Call(name, span, token.span, distinct, arguments, condition, order)
        index = last + 1


def _behind(tokens: Sequence[Token], end: int) -> tuple[int, tuple[Token, ...], tuple[Token, ...] | None, str]:
    """The clauses of a call after its bracket: WITHIN GROUP (...), FILTER (...), IGNORE NULLS.

    Returns the index of the last token, the order, the condition, and the rule for NULLs: "ignore", "respect" or "".
    """
    order: tuple[Token, ...] = ()
    condition: tuple[Token, ...] | None = None
    nulls = ""
    if (_word(tokens, end + 1), _word(tokens, end + 2), _word(tokens, end + 3)) == ("WITHIN", "GROUP", "("):
        start, end = end + 4, closing(tokens, end + 3)
        order = tuple(tokens[start:end])
    if (_word(tokens, end + 1), _word(tokens, end + 2)) == ("FILTER", "("):
        start, end = end + 4, closing(tokens, end + 2)  # past the word WHERE
        condition = tuple(tokens[start:end])
    if _word(tokens, end + 1) in ("IGNORE", "RESPECT") and _word(tokens, end + 2) == "NULLS":
        nulls = _word(tokens, end + 1).lower()
        end += 2
    return end, order, condition, nulls


def _word(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].upper if index < len(tokens) else ""


def split_commas(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Split at the commas outside brackets."""
    piece: list[Token] = []
    depth = 0
    for token in tokens:
        if token.kind == "symbol":
            depth += (token.text in OPENING) - (token.text in CLOSING)
            if token.text == "," and depth == 0:
                yield piece
                piece = []
                continue
        piece.append(token)
    if piece:
        yield piece


def conjuncts(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The operands of AND, in brackets too; nothing if OR joins them.

    >>> from anabranch.sql.lexer import tokenize
    >>> tokens = tokenize("(a AND b) AND (c OR d) AND e BETWEEN f AND g")[:-1]
    >>> [" ".join(token.text for token in each) for each in conjuncts(tokens)]
    ['a', 'b', '( c OR d )', 'e BETWEEN f AND g']
    """
    while len(tokens) > 2 and tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    depth = cases = between = 0
    piece: list[Token] = []
    pieces: list[list[Token]] = []
    for token in tokens:
        word = token.upper
        if token.kind == "symbol":
            depth += (token.text in "([{") - (token.text in ")]}")
        cases += (word == "CASE") - (word == "END" and cases > 0)
        if depth == 0 and cases == 0:
            if word == "OR":
                return
            between += word == "BETWEEN"
            if word == "AND" and between:
                between -= 1
            elif word == "AND":
                pieces.append(piece)
                piece = []
                continue
        piece.append(token)
    for each in (*pieces, piece):
        if each and each[0].text == "(" and closing(each, 0) == len(each) - 1:
            yield from list(conjuncts(each)) or [each]
        else:
            yield each


@dataclass(frozen=True)
class Chain:
    """A name in an expression: `price`, `b.price`."""

    parts: tuple[str, ...]
    span: Span


def chains(tokens: Sequence[Token]) -> Iterator[Chain]:
    """The names of an expression that are not calls, keywords included."""
    index = 0
    while index < len(tokens):
        if not tokens[index].is_name:
            index += 1
            continue
        start = index
        parts = [tokens[index].name]
        while index + 2 < len(tokens) and tokens[index + 1].text == "." and tokens[index + 2].is_name:
            index += 2
            parts.append(tokens[index].name)
        index += 1
        if index < len(tokens) and tokens[index].text == "(":
            continue
        yield Chain(tuple(parts), Span(tokens[start].start, tokens[index - 1].end))


def only_name(tokens: Sequence[Token]) -> Chain | None:
    """The name that an expression consists of, if it is nothing else."""
    named = list(chains(tokens))
    return named[0] if len(named) == 1 and named[0].span == tokens[0].span.to(tokens[-1].span) else None


def generators(tokens: Sequence[Token]) -> Iterator[Token]:
    """Calls of generator functions."""
    for token, bracket in itertools.pairwise(tokens):
        if token.kind == "word" and token.text.lower() in GENERATORS and bracket.text == "(":
            yield token


def calls_of(names: frozenset[str], tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The calls of these functions outside subqueries."""
    index = 0
    while index < len(tokens):
        if tokens[index].text == "(" and index + 1 < len(tokens) and tokens[index + 1].upper in ("SELECT", "WITH"):
            index = closing(tokens, index)
        elif _calls(tokens, index, names):
            end = closing(tokens, index + 1) + 1
            yield tokens[index:end]
            index = end - 1
        index += 1


def volatile_calls(tokens: Sequence[Token]) -> Iterator[Token]:
    """Calls of random functions, and of functions of the session."""
    for index, token in enumerate(tokens):
        bare = token.kind == "word" and token.text.lower() in _BARE_SESSION and not _named(tokens, index)
        if _calls(tokens, index, VOLATILE | SESSION) or bare:
            yield token


def clock_calls(tokens: Sequence[Token]) -> Iterator[tuple[str, Span]]:
    """Calls of functions of the clock: their names, and their spans with the brackets.

    They include literals that denote the current time, with the name `date 'today'`.

    >>> from anabranch.sql.lexer import tokenize
    >>> [name for name, _ in clock_calls(tokenize("CAST('Now' AS TIMESTAMP) > to_date('today') OR k = 'now'"))]
    ["timestamp 'now'", "date 'today'"]
    """
    for index, token in enumerate(tokens):
        name = token.text.lower()
        moment = _moment(tokens, index)
        if moment is not None:
            yield moment
            continue
        if _calls(tokens, index, CLOCK):
            end = closing(tokens, index + 1)
            if name != "unix_timestamp" or end == index + 2:  # with an argument it converts the argument
                yield name, Span(token.start, tokens[end].end)
        elif token.kind == "word" and name in _WITHOUT_BRACKETS and not _named(tokens, index):
            yield name, Span(token.start, token.end)


def _moment(tokens: Sequence[Token], index: int) -> tuple[str, Span] | None:
    """A literal of the current time: DATE 'today', CAST('now' AS TIMESTAMP), 'now'::TIMESTAMP, to_date('today')."""
    near = [*tokens[index : index + 6]]
    texts = [token.upper for token in near]
    kind: str | None = None
    at = end = 0
    if texts[0] in ("CAST", "TRY_CAST") and texts[1:2] == ["("] and texts[3:4] == ["AS"] and texts[5:6] == [")"]:
        kind, at, end = _TIMES.get(texts[4].lower()), 2, 5
    elif texts[1:2] == ["("] and texts[3:4] == [")"] and not _qualified(tokens, index):
        kind, at, end = _TO_TIMES.get(texts[0].lower()), 2, 3
    elif len(near) > 1 and near[1].kind == STRING:
        kind, at, end = _TIMES.get(texts[0].lower()), 1, 1
    elif near[0].kind == STRING and texts[1:2] == ["::"] and len(near) > 2:
        kind, at, end = _TIMES.get(texts[2].lower()), 0, 2
    found = MOMENT.fullmatch(near[at].value) if kind is not None and near[at].kind == STRING else None
    if found is None:
        return None
    said = " ".join(part for part in (found[1].lower(), found[2]) if part)
    return f"{kind} '{said}'", Span(near[0].start, near[end].end)


def _calls(tokens: Sequence[Token], index: int, names: frozenset[str]) -> bool:
    token = tokens[index]
    called = index + 1 < len(tokens) and tokens[index + 1].text == "("
    return token.kind == "word" and token.text.lower() in names and called and not _qualified(tokens, index)


def _qualified(tokens: Sequence[Token], index: int) -> bool:
    return index > 0 and tokens[index - 1].text == "."


def _named(tokens: Sequence[Token], index: int) -> bool:
    """Whether a word is a name: part of a qualified one, or an alias."""
    after = tokens[index + 1].text if index + 1 < len(tokens) else ""
    return _qualified(tokens, index) or after == "." or (index > 0 and tokens[index - 1].upper == "AS")
