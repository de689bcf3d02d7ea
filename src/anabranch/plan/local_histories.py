"""Histories in DuckDB's words: what `intervals` and `grouped` write for Spark around the text of a user.

Lists of stretches of time are made, cut and taken apart by functions that the two engines call by other names. They
are read here one by one, as they are written there; a text with any other is left to Spark. So this is for histories of
queries that mean the same in DuckDB themselves (`means_the_same`): then no such call is the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from anabranch.duck import quoted
from anabranch.plan.catalog import Field
from anabranch.plan.local import Pieces, Placeholder, local_text, own_text, split
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.lexer import NUMBER, WORD, Token

Piece = str | Placeholder
_Found = tuple[Sequence[Piece], int] | None

#: What a call of Spark's is in DuckDB, {0} and so on being its arguments. In none of the lists there is a NULL.
_CALLS = {
    "greatest": "greatest({*})",
    "least": "least({*})",
    "nullif": "nullif({0}, {1})",
    "array": "[{*}]",
    "array_compact": "list_filter({0}, lambda __e: __e IS NOT NULL)",
    "array_distinct": "list_distinct({0})",
    "array_repeat": "repeat([{0}], {1})",
    "array_sort": "list_sort({0})",
    "aggregate": "list_transform([list_reduce({0}, {2}, {1})], {3})[1]",
    "collect_set": "list(DISTINCT {0})",
    "concat": "list_concat({*})",
    "count_if": "count(*) FILTER (WHERE {0})",
    "filter": "list_filter({0}, {1})",
    "flatten": "flatten({0})",
    "get": "({0})[{1} + 1]",
    "transform": "list_transform({0}, {1})",
}
#: The rows of a list, {0}.
_ROWS = {
    "explode": "unnest({0})",
    "inline": "unnest({0}, max_depth := 2)",
    "posexplode": "unnest(range(len({0}))), unnest({0})",
}
#: What these rows are called.
_OWN = ("__both", "__parts", "__s", "__times")
#: What a number of times begins with.
_TIMES = ("__count", "greatest", "least")
#: A list without any, as it is written for Spark.
_NO_PARTS = "CAST(array()ASARRAY<STRUCT<f:BIGINT,t:BIGINT>>)"


def means_the_same(text: str, fields: Iterable[Field]) -> bool:
    """Whether a query over these columns means the same in DuckDB."""
    return local_text(text, lambda placeholder: placeholder, fields) is not None


def history_text(text: str, relation: Callable[[str], str | None]) -> str | None:
    """The history of such a query for DuckDB, or None. `relation` gives what to write for a placeholder."""
    return own_text(text, relation, _in_history)


def counted_text(text: str, relation: Callable[[str], str | None]) -> str | None:
    """A query that leaves out rows of a run which came behind the one that fired, for DuckDB; or None."""
    return own_text(text, relation, _in_condition)


def _in_condition(tokens: Sequence[Token], index: int) -> _Found:
    """`__t.__k0 <=> (value)`, between AND and AND, or alone: the key of a row among those that fired."""
    texts = [token.text for token in tokens[index : index + 5]]
    if texts[:2] != ["__t", "."] or texts[3:] != ["<=>", "("] or not texts[2].startswith("__k"):
        return None
    end = closing(tokens, index + 4)
    value = split(tokens[index + 5 : end])
    if value is None or tokens[index - 1].upper not in ("WHERE", "AND") or tokens[end + 1].upper not in (")", "AND"):
        return None
    return [f'"__t"."{texts[2]}" IS NOT DISTINCT FROM (', *value, ")"], end + 1


def _in_history(tokens: Sequence[Token], index: int) -> _Found:
    token = tokens[index]
    following = tokens[index + 1].text if index + 1 < len(tokens) else ""
    if token.upper == "LATERAL" and following.upper() == "VIEW":
        return _rows(tokens, index)
    if token.kind != WORD or following != "(":
        return None
    if index and token.upper == "FILTER" and tokens[index - 1].text == ")":  # the rows that an aggregate takes
        return None
    end = closing(tokens, index + 1)
    behind = tokens[end + 1].upper if end + 1 < len(tokens) else ""
    pieces = _call(token.text, tokens[index : end + 1], behind)
    return None if pieces is None else (pieces, end + 1)


def _rows(tokens: Sequence[Token], index: int) -> _Found:
    """LATERAL VIEW inline(list) `__parts` AS __f, __t."""
    end = closing(tokens, index + 3)
    text = _ROWS.get(tokens[index + 2].text)
    values = split(tokens[index + 4 : end], _in_history)
    if text is None or values is None or tokens[end + 1].name not in _OWN or tokens[end + 2].upper != "AS":
        return None
    names = [tokens[end + 3]]
    behind = end + 4
    while behind < len(tokens) and tokens[behind].text == ",":
        names.append(tokens[behind + 1])
        behind += 2
    rows = f"AS {quoted(tokens[end + 1].name)}({', '.join(quoted(name.name) for name in names)})"
    return [", LATERAL (SELECT", *_written(text, [values]), ")", rows], behind


def _call(name: str, tokens: Sequence[Token], behind: str) -> Pieces:
    """A call, whose tokens these are, before another token."""
    if name == "CAST":
        return _cast(tokens)
    inside = tokens[2:-1]
    if name == "collect_list":
        return _list(inside, over=behind == "OVER")
    arguments = [_argument(each) for each in split_commas(inside)]
    if name == "named_struct":
        return _struct(arguments)
    text = _CALLS.get(name)
    if text is None or any(each is None for each in arguments):
        return None
    if "{*}" not in text and text.count("{") != len(arguments):
        return None
    return _written(text, [each for each in arguments if each is not None])


def _cast(tokens: Sequence[Token]) -> Pieces:
    """A list without stretches, the moment before all others, and a number of times."""
    texts = [token.text for token in tokens]
    if "".join(texts) == _NO_PARTS:
        return ("CAST([] AS STRUCT(f BIGINT, t BIGINT)[])",)
    if texts[2:] == ["-", "1", "AS", "BIGINT", ")"]:
        return ("CAST(-1 AS BIGINT)",)
    times = split(tokens[2:-3], _in_history) if texts[2] in _TIMES and texts[-3:] == ["AS", "INT", ")"] else None
    return None if times is None else ("CAST(", *times, "AS BIGINT)")


def _list(tokens: Sequence[Token], *, over: bool) -> Pieces:
    """Values as a list; CASE WHEN condition THEN value END leaves some out."""
    if tokens[0].upper != "CASE":
        value = split(tokens, _in_history)
        return None if value is None else ("list(", *value, ")")
    words = [token.upper for token in tokens]
    depths = _depths(tokens)
    then = next(i for i, word in enumerate(words) if word == "THEN" and depths[i] == 0)
    condition, value = split(tokens[2:then], _in_history), split(tokens[then + 1 : -1], _in_history)
    if words[1] != "WHEN" or words[-1] != "END" or "ELSE" in words or condition is None or value is None or over:
        return None
    return "coalesce(list(", *value, ") FILTER (WHERE", *condition, "), [])"


def _depths(tokens: Sequence[Token]) -> list[int]:
    """How many brackets are open at each of some tokens."""
    depth, found = 0, []
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        found.append(depth)
    return found


def _struct(arguments: Sequence[Pieces]) -> Pieces:
    """Names and values in turn."""
    pieces: list[Piece] = []
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if name is None or value is None:
            return None
        pieces += [", " if pieces else "{", *name, ":", *value]
    return *pieces, "}"


def _argument(tokens: Sequence[Token]) -> Pieces:
    """A value, or a function of one value or two."""
    arrow = next((index for index, token in enumerate(tokens) if token.text == "->"), None)
    if arrow is None or arrow not in (1, closing(tokens, 0) + 1):
        return split(tokens, _in_history)
    names = [token.text for token in tokens[:arrow] if token.kind == WORD]
    # No column is called like this; and where DuckDB gives a function the place of a value, it counts from 1.
    new = {name: Token(WORD, f"__lambda_{name}", 0, 0) for name in names}
    body: list[Token] = []
    for before, token in zip(tokens[arrow:], tokens[arrow + 1 :], strict=False):
        found = new.get(token.text) if token.kind == WORD and before.text != "." else None
        if found is not None and token.text == "i":
            one = [replace(token, kind=kind, text=text) for kind, text in (("symbol", "-"), (NUMBER, "1"))]
            body += [replace(token, kind="symbol", text="("), found, *one, replace(token, kind="symbol", text=")")]
        else:
            body.append(found or token)
    pieces = split(body, _in_history)
    return None if pieces is None else (f"lambda {', '.join(new[name].text for name in names)}:", *pieces)


def _written(text: str, arguments: Sequence[Sequence[Piece]]) -> tuple[Piece, ...]:
    """A text with arguments in their places; {*} stands for all of them."""
    pieces: list[Piece] = []
    for part in text.replace("{", "\0{").replace("}", "}\0").split("\0"):
        if part == "{*}":
            for index, each in enumerate(arguments):
                pieces += [*([","] if index else []), *each]
        elif part.startswith("{"):
            pieces += arguments[int(part[1:-1])]
        else:
            pieces.append(part)
    return tuple(pieces)
