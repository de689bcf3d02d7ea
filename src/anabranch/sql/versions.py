"""ASOF joins and temporal joins as joins that Spark knows: each version of a key is told when the next one begins.

    FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.item = q.item

is rewritten to

    FROM trades t LEFT JOIN
      (SELECT q.*, LEAD(q.ts) OVER (PARTITION BY q.item ORDER BY q.ts) AS __until1 FROM quotes q) AS q
      ON t.item = q.item AND t.ts >= q.ts AND (q.__until1 IS NULL OR t.ts < q.__until1)

and so is `JOIN quotes FOR SYSTEM_TIME AS OF t.ts AS q ON ...`, where the event time of `quotes` stands for `q.ts`. Of
versions of one time all but the last end when they begin, so that one of them is left. What is added is no column of
the answer: a star leaves it out.

With TOLERANCE a version that the next one does not follow in that time needs no end, and gets none:

    CASE WHEN LEAD(q.ts) OVER (...) <= q.ts + INTERVAL 5 MINUTES THEN LEAD(q.ts) OVER (...) END AS __until1

so that a new version says nothing about those that are further from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.calls import chains, closing, conjuncts
from anabranch.sql.clauses import Block, find_blocks
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, STRING, SYMBOL, Span, Token, normal_form
from anabranch.sql.net import at_net, take_net
from anabranch.sql.relations import at_moment, take_alias, take_relation
from anabranch.sql.spellings import as_written
from anabranch.sql.splice import Edit
from anabranch.sql.terms import JOIN_WORDS, ends_value, meant, misspelt, take_expression

#: The column that stands for the event time of the versions until it is known which one that is.
EVENT_TIME = "__event_time"
#: How the name of the column starts that tells when the next version begins.
UNTIL = "__until"
_WORDS = JOIN_WORDS | {"ASOF"}
_FLIPPED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
_EQUAL = ("=", "==", "<=>")
#: The comparison with the next version that goes with one with a version.
_BEFORE_NEXT = {">=": "<", ">": "<=", "<=": ">", "<": ">="}

Piece = tuple[str, Span | None]  # a text, and where it was written; None where the clause itself is meant


@dataclass
class _Comparison:
    """`left sign right`, with what is of the versions on the right."""

    left: Sequence[Token]
    sign: str
    right: Sequence[Token]

    @property
    def span(self) -> Span:
        tokens = [*self.left, *self.right]
        return Span(min(token.start for token in tokens), max(token.end for token in tokens))


@dataclass
class _Join:
    """An ASOF or temporal join as it was written."""

    words: Span  # [LEFT] ASOF JOIN
    kinds: frozenset[str]
    start: int  # the relation with its alias, in the text
    end: int = 0
    name: str | None = None  # by which its columns are qualified, as written
    alias: bool = False
    moment: Sequence[Token] = ()  # of FOR SYSTEM_TIME AS OF
    match: Sequence[Token] = ()  # inside MATCH_CONDITION (...)
    tolerance: Sequence[Token] = ()
    on: Token | None = None
    condition: Sequence[Token] = ()
    using: list[Token] = field(default_factory=list)
    cuts: list[Span] = field(default_factory=list)  # clauses that go away
    stop: int = 0  # where the join ends in the text


def join_edits(text: str, tokens: list[Token], bracketed: bool) -> list[Edit]:
    """The edits that make plain joins of the ASOF and temporal joins of a statement."""
    words = {token.upper for token in tokens}
    if not words & {"ASOF", "SYSTEM_TIME"} or "JOIN" not in words:
        return []
    return list(_Rewriter(text, tokens, bracketed).edits())


class _Rewriter:
    def __init__(self, text: str, tokens: list[Token], bracketed: bool) -> None:
        self.text = text
        self.tokens = tokens
        self.blocks = find_blocks(text, tokens, bracketed)
        self.count = 0

    def edits(self) -> Iterator[Edit]:
        for block in self.blocks:
            hidden: list[_Hidden] = []
            for first, relation, end in self._entries(block):
                join = self._join(first, relation, end)
                if join is not None:
                    made = _Made(self.text, join, self.count + 1)
                    self.count += 1
                    yield from made.edits()
                    hidden.append(made.hidden)
            if hidden:
                yield from self._stars(block, hidden)
                for each in hidden:
                    yield from self._keys(block, each)

    # ---- reading

    def _entries(self, block: Block) -> list[tuple[int, int, int]]:
        """The entries of FROM: where the words of the join, the relation and the next entry stand."""
        if block.source is None:
            return []
        found = [(block.source, block.source)]
        index = block.source
        while index < block.source_end:
            token = self.tokens[index]
            if token.kind == SYMBOL and token.text in OPENING:
                index = closing(self.tokens, index)
            elif token.text == "," and token.kind == SYMBOL:
                found.append((index + 1, index + 1))
            elif index > found[-1][1] and (behind := self._behind_join(index)) is not None:
                found.append((index, behind))
                index = behind - 1
            index += 1
        ends = [first for first, _ in found[1:]] + [block.source_end]
        return [(first, relation, end) for (first, relation), end in zip(found, ends, strict=True)]

    def _behind_join(self, index: int) -> int | None:
        """Behind the word JOIN of a join that starts here."""
        if self.tokens[index - 1].text == "." or self.tokens[index - 1].upper == "AS":
            return None
        while self.tokens[index].upper in _WORDS - {"JOIN"}:
            index += 1
        return index + 1 if self.tokens[index].upper == "JOIN" else None

    def _join(self, first: int, relation: int, end: int) -> _Join | None:
        """The join of an entry, if it is one of these."""
        kinds = frozenset(token.upper for token in self.tokens[first:relation])
        cursor = self._cursor(relation, end)
        if "JOIN" not in kinds or ("ASOF" not in kinds and not self._timed(relation, end)):
            return None
        words = Span(self.tokens[first].start, self.tokens[max(first, relation - 1)].end)
        join = _Join(words, kinds, cursor.current.start)
        self._relation(cursor, join)
        if not join.moment and "ASOF" not in kinds:
            return None
        if kinds - {"ASOF", "JOIN", "INNER", "LEFT", "OUTER"}:
            raise NotSupported(
                "a join with versions is an inner or a LEFT join", text=self.text, start=words.start, end=words.end
            )
        self._conditions(cursor, join)
        return join

    def _timed(self, relation: int, end: int) -> bool:
        """Whether FOR SYSTEM_TIME AS OF with the time of another relation stands in an entry, outside brackets."""
        index = relation
        while index < end:
            if self.tokens[index].kind == SYMBOL and self.tokens[index].text in OPENING:
                index = closing(self.tokens, index)
            elif at_moment(Cursor(self.text, self.tokens, index)):
                return True
            index += 1
        return False

    def _cursor(self, first: int, end: int) -> Cursor:
        """A cursor over some of the tokens, that ends with them."""
        stop = self.tokens[end - 1].end if end > first else self.tokens[first].start
        return Cursor(self.text, [*self.tokens[first:end], Token(END, "", stop, stop)])

    def _relation(self, cursor: Cursor, join: _Join) -> None:
        """The relation of the versions, with its moment and its alias."""
        if cursor.current.text == "(":
            cursor.advance()
            cursor.close_bracket()
        elif cursor.current.kind == STRING:
            cursor.advance()
        elif at_net(cursor):
            alias = take_net(cursor, "", take_relation).alias
            join.name = as_written(alias) if alias is not None else None
        else:
            cursor.dotted_name("a stream, view, table or path")
            join.name = cursor.previous.text
            if cursor.take("("):
                cursor.close_bracket()
                join.name = None
        self._moment(cursor, join)
        if cursor.take("AS", "OF", "VERSION"):
            cursor.expect_whole_number("the number of a version")
        elif cursor.at("INCLUDING", "PROVISIONAL"):
            cursor.index += 2
        self._refuse_misspelt(cursor, "MATCH_CONDITION", "(")
        if not cursor.at("MATCH_CONDITION", "(") and not self._at_tolerance(cursor):
            place = cursor.index + (1 if cursor.at("AS") else 0)
            if take_alias(cursor) is not None:
                join.name, join.alias = cursor.tokens[place].text, True
        join.end = cursor.previous.end
        self._moment(cursor, join)

    def _moment(self, cursor: Cursor, join: _Join) -> None:
        if not at_moment(cursor):
            return
        start = cursor.current.start
        cursor.index += 4
        first = cursor.index
        cursor.dotted_name("the time of another relation")
        join.moment = cursor.tokens[first : cursor.index]
        join.cuts.append(Span(start, cursor.previous.end))

    def _conditions(self, cursor: Cursor, join: _Join) -> None:
        """MATCH_CONDITION, TOLERANCE, and ON or USING."""
        if cursor.at("MATCH_CONDITION", "("):
            word = cursor.advance()
            if join.moment:
                raise self._wrong(word.span, "FOR SYSTEM_TIME AS OF says already which version is meant")
            first = cursor.index + 1
            cursor.advance()
            cursor.close_bracket()
            join.match = cursor.tokens[first : cursor.index - 1]
            join.cuts.append(Span(word.start, cursor.previous.end))
            if not join.match:
                raise self._wrong(join.cuts[-1], "expected a comparison of times", "as in (a.ts >= b.ts)")
        self._tolerance(cursor, join)
        if cursor.at("USING"):
            join.cuts.append(Span(cursor.advance().start, cursor.current.end))
            cursor.expect("(")
            join.using.append(cursor.expect_name("a column"))
            while cursor.take(","):
                join.using.append(cursor.expect_name("a column"))
            cursor.expect(")")
            join.cuts[-1] = Span(join.cuts[-1].start, cursor.previous.end)
        elif cursor.at("ON"):
            join.on = cursor.advance()
            condition = list(take_expression(cursor, "a join condition").tokens)
            cut = next((i for i in range(len(condition)) if self._begins_tolerance(condition, i)), None)
            if cut is not None:
                cursor.index -= len(condition) - cut
                condition = condition[:cut]
            if not condition:
                raise cursor.problem("expected a join condition")
            join.condition = condition
        join.stop = join.on.end if join.on is not None else cursor.previous.end
        if join.condition:
            join.stop = join.condition[-1].end
        self._tolerance(cursor, join)
        if not cursor.at_end and not cursor.at("LATERAL"):
            raise cursor.problem("expected ON or USING" if join.on is None and not join.using else "expected a join")

    def _begins_tolerance(self, tokens: Sequence[Token], index: int) -> bool:
        if index == 0 or not ends_value(tokens[index - 1]):
            return False
        cursor = Cursor(self.text, [*tokens, Token(END, "", tokens[-1].end, tokens[-1].end)], index)
        depth = sum((t.text in OPENING) - (t.text in CLOSING) for t in tokens[:index] if t.kind == SYMBOL)
        self._refuse_misspelt(cursor, "TOLERANCE", "INTERVAL")
        return depth == 0 and self._at_tolerance(cursor)

    def _at_tolerance(self, cursor: Cursor) -> bool:
        return cursor.at("TOLERANCE") and (cursor.ahead(1).upper == "INTERVAL" or cursor.ahead(1).kind == NUMBER)

    def _tolerance(self, cursor: Cursor, join: _Join) -> None:
        self._refuse_misspelt(cursor, "TOLERANCE", "INTERVAL")
        if not self._at_tolerance(cursor):
            return
        word = cursor.advance()
        join.tolerance = take_expression(cursor, "how old a version can be").tokens
        join.cuts.append(Span(word.start, cursor.previous.end))

    def _refuse_misspelt(self, cursor: Cursor, keyword: str, behind: str) -> None:
        if cursor.ahead(1).upper == behind and misspelt(cursor.current, (keyword,)) is not None:
            raise meant(self.text, cursor.current, keyword)

    def _wrong(self, span: Span, message: str, hint: str | None = None) -> SyntaxProblem:
        return SyntaxProblem(message, text=self.text, start=span.start, end=span.end, hint=hint)

    # ---- the rest of the SELECT

    def _own(self, block: Block, first: int, end: int) -> Iterator[int]:
        """The tokens of a stretch that are in no query inside it."""
        inner = [each for each in self.blocks if block.select < each.select < block.end]
        return (index for index in range(first, end) if not any(each.holds(index) for each in inner))

    def _stars(self, block: Block, hidden: list[_Hidden]) -> Iterator[Edit]:
        """Let stars leave out what was added; the columns of USING come once, and first."""
        for index in self._own(block, block.items, block.items_end):
            if self.tokens[index].text != "*" or self.tokens[index].kind != SYMBOL:
                continue
            before = self.tokens[index - 1]
            qualified = before.text == "."
            if qualified:
                meant = [each for each in hidden if each.is_called(self.tokens[index - 2].name)]
                first = index - 2
            elif index == block.items or before.text in (",", "(") or before.upper in ("DISTINCT", "ALL"):
                counts = before.text == "(" and self.tokens[index - 2].upper == "COUNT"
                meant, first = ([] if counts else hidden), index
            else:
                continue
            if meant:
                item = first == block.items or self.tokens[first - 1].text == ","
                yield from self._star(index, first, meant, qualified, item)

    def _star(self, index: int, first: int, meant: list[_Hidden], qualified: bool, item: bool) -> Iterator[Edit]:
        names = [name for each in meant for name in each.columns]
        keys = {key.lower(): f"{each.name}.{own} AS {key}" for each in meant for key, own in each.keys}
        excepted = self.tokens[index + 1].upper == "EXCEPT" and self.tokens[index + 2].text == "("
        if keys and item and not excepted:
            shown = ", ".join(keys.values() if qualified else keys)
            start = self.tokens[first].start
            yield Edit(Span(start, start), f"{shown}, ", Span(start, self.tokens[index].end))
            names += [] if qualified else list(keys)
        place = self.tokens[index + 2].end if excepted else self.tokens[index].end
        text = f"{', '.join(names)}, " if excepted else f" EXCEPT ({', '.join(names)})"
        yield Edit(Span(place, place), text, self.tokens[index].span)

    def _keys(self, block: Block, hidden: _Hidden) -> Iterator[Edit]:
        """The columns of USING that are asked for by the name of the versions."""
        own = {key.lower(): name for key, name in hidden.keys}
        outside = [*range(block.items, block.items_end), *range(block.source_end, block.end)]
        inside = set(self._own(block, block.select, block.end))
        for index in (each for each in outside if each in inside and own):
            token = self.tokens[index]
            if not token.is_name or token.name.lower() not in own or self.tokens[index - 1].text != ".":
                continue
            first = index - 2
            if not hidden.is_called(self.tokens[first].name) or self.tokens[first - 1].text == ".":
                continue
            whole = (first == block.items or self.tokens[first - 1].text == ",") and index < block.items_end
            whole = whole and (index + 1 == block.items_end or self.tokens[index + 1].text == ",")
            yield Edit(token.span, own[token.name.lower()] + (f" AS {token.text}" if whole else ""))


@dataclass(frozen=True)
class _Hidden:
    """What was added to the columns of a relation: the names, and those that hold columns of USING."""

    name: str  # of the relation, as written
    columns: tuple[str, ...]
    keys: tuple[tuple[str, str], ...] = ()  # the column, as written, and the name it has now

    def is_called(self, name: str) -> bool:
        own = self.name[1:-1].replace("``", "`") if self.name.startswith("`") else self.name
        return own.lower() == name.lower()


class _Made:
    """The plain join that stands for one of these."""

    def __init__(self, text: str, join: _Join, number: int) -> None:
        self.text = text
        self.join = join
        self.number = number
        self.name = join.name or f"__versions{number}"
        self.until = f"{UNTIL}{number}"
        self.since = f"__since{number}"
        self.own_keys = tuple((key.text, f"__key{number}_{index}") for index, key in enumerate(join.using))
        self.plain_name = _Hidden(self.name, ()).is_called
        keys, rest = self._conditions()
        self.partition: list[Sequence[Token]] = [each.right for each in keys if any(t.is_name for t in each.right)]
        self.match, self.bound = self._match(rest)

    @property
    def hidden(self) -> _Hidden:
        names = [self.until, *([self.since] if self.join.moment else []), *(own for _, own in self.own_keys)]
        return _Hidden(self.name, tuple(names), self.own_keys)

    # ---- what was meant

    def _conditions(self) -> tuple[list[_Comparison], list[_Comparison]]:
        """The conditions of ON: equalities, and others."""
        if not self.join.condition:
            return [], []
        found = [self._comparison(each) for each in self._pieces(self.join.condition)]
        return [each for each in found if each.sign in _EQUAL], [each for each in found if each.sign in _FLIPPED]

    def _pieces(self, tokens: Sequence[Token]) -> list[Sequence[Token]]:
        while tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1 and len(tokens) > 2:
            tokens = tokens[1:-1]
        pieces = list(conjuncts(tokens))
        if not all(pieces):
            last = tokens[-1] if not pieces[-1] else next(token for token in tokens if token.upper == "AND")
            raise self._wrong(last.span, "something is missing beside AND")
        if not pieces:
            raise self._wrong(
                _span(tokens), "which version is meant does not depend on alternatives", "write conditions with AND"
            )
        flat: list[Sequence[Token]] = []
        for piece in pieces:
            nested = piece[0].text == "(" and closing(piece, 0) == len(piece) - 1
            flat += self._pieces(piece) if nested else [piece]
        return flat

    def _comparison(self, tokens: Sequence[Token], positional: bool = False) -> _Comparison:
        """A comparison of the two sides, turned so that the versions are on its right."""
        depth, at = 0, []
        for index, token in enumerate(tokens):
            if token.kind == SYMBOL:
                depth += (token.text in OPENING) - (token.text in CLOSING)
                if depth == 0 and (token.text in _FLIPPED or token.text in _EQUAL):
                    at.append(index)
        span = _span(tokens)
        if len(at) != 1 or at[0] in (0, len(tokens) - 1):
            raise self._wrong(
                span,
                "the two sides of a join with versions are compared by =, and their times by >=, >, <= or <",
                "put other conditions into WHERE, or into a subquery",
            )
        sign = tokens[at[0]].text
        left, right = tokens[: at[0]], tokens[at[0] + 1 :]
        sides = self._side(left), self._side(right)
        if sides in (("versions", "other"), ("versions", ""), ("", "other")):
            return _Comparison(right, _FLIPPED.get(sign, sign), left)
        if sides in (("other", "versions"), ("other", ""), ("", "versions")) or (positional and sides == ("", "")):
            return _Comparison(left, sign, right)
        bare = sides == ("", "")
        what = "nothing tells which side is which" if bare else f"one side has to be of {self.name}, and one not"
        raise self._wrong(span, what, f"columns of {self.name} are written {self.name}.column")

    def _side(self, tokens: Sequence[Token]) -> str:
        """`versions` or `other`, by the names that columns are qualified by; nothing if none is, `both` if all are."""
        qualifiers = [chain.parts[0] for chain in chains(tokens) if len(chain.parts) > 1]
        own = [self.plain_name(each) for each in qualifiers]
        return "" if not own else "versions" if all(own) else "both" if any(own) else "other"

    def _match(self, rest: list[_Comparison]) -> tuple[_Comparison | None, list[_Comparison]]:
        """The comparison of times that picks the version (None: by FOR SYSTEM_TIME), and bounds on how far it is."""
        if self.join.moment:
            if self._side(self.join.moment) == "versions":
                raise self._wrong(_span(self.join.moment), "the time has to be of another relation")
            return None, self._bounds(">=", rest)
        if self.join.match:
            pieces = self._pieces(self.join.match)
            found = self._comparison(pieces[0], positional=True)
            more = [self._comparison(piece) for piece in pieces[1:]]
            if found.sign not in _FLIPPED:
                raise self._wrong(found.span, "times are compared by >=, >, <= or <", "equal columns belong to ON")
            return found, self._bounds(found.sign, [*more, *rest])
        plain = [each for each in rest if _is_name(each.left) and _is_name(each.right)] if len(rest) > 1 else rest
        if len(plain) != 1:
            raise self._wrong(
                rest[1].span if rest else self.join.words,
                "an ASOF JOIN compares one time with another" + ("" if plain else ", and here is no such comparison"),
                f"as in MATCH_CONDITION (a.ts >= {self.name}.ts)" + ("" if rest else "; an alias asof needs AS"),
            )
        return plain[0], self._bounds(plain[0].sign, [each for each in rest if each is not plain[0]])

    def _bounds(self, sign: str, rest: list[_Comparison]) -> list[_Comparison]:
        for each in rest:
            if each.sign[0] == sign[0] or each.sign not in _FLIPPED:
                raise self._wrong(
                    each.span,
                    "one comparison of times picks the version",
                    "how far from it a version can be is said by TOLERANCE INTERVAL 5 MINUTES",
                )
        return rest

    def _wrong(self, span: Span, message: str, hint: str | None = None) -> SyntaxProblem:
        return SyntaxProblem(message, text=self.text, start=span.start, end=span.end, hint=hint)

    # ---- what is written for it

    def edits(self) -> Iterator[Edit]:
        join = self.join
        yield Edit(join.words, "LEFT JOIN" if self._left else "JOIN")
        yield from self._insert(join.start, self._opening())
        for cut in join.cuts:
            yield Edit(cut, "")
        inside = "" if join.name is not None else f" AS {self.name}"
        yield from self._insert(join.end, [(f"{inside}) AS {self.name}", None)])
        yield from self._insert(join.stop, self._behind())

    @property
    def _left(self) -> bool:
        return "LEFT" in self.join.kinds or (bool(self.join.match) and "INNER" not in self.join.kinds)

    def _insert(self, place: int, pieces: Sequence[Piece]) -> Iterator[Edit]:
        for text, origin in pieces:
            yield Edit(Span(place, place), text, origin or self.join.words)

    def _opening(self) -> list[Piece]:
        """What stands before the relation of the versions."""
        time = self._time(inside=True)
        keys_at = _span(self.join.using) if self.join.using else None
        pieces: list[Piece] = [("(SELECT ", None)]
        if self.join.moment:  # in front of others that are event times too: versions are found by this one
            pieces += [*time, (f" AS {self.since}, ", None)]
        pieces.append((f"{self.name}.*", keys_at))
        if self.own_keys:
            pieces.append((f" EXCEPT ({', '.join(key for key, _ in self.own_keys)})", keys_at))
        for key, (_, own) in zip(self.join.using, self.own_keys, strict=True):
            pieces += [(f", {self.name}.{key.text}", key.span), (f" AS {own}", None)]
        next_one = self._next(time)
        limit = self._limit(time)
        if not limit:
            return [*pieces, (", ", None), *next_one, (f" AS {self.until} FROM ", None)]
        sign = ">=" if self._backwards else "<="
        pieces += [(", CASE WHEN ", None), *next_one, (f" {sign} ", None), *limit, (" THEN ", None), *next_one]
        return [*pieces, (f" END AS {self.until} FROM ", None)]

    @property
    def _backwards(self) -> bool:
        return self.match is not None and self.match.sign[0] == "<"

    def _limit(self, time: list[Piece]) -> list[Piece]:
        """The time up to which a version can be in force at all: when the next one begins counts no later."""
        if self.join.tolerance:
            return [*time, (f" {'-' if self._backwards else '+'} ", None), self._piece(self.join.tolerance)]
        left = self.match.left if self.match is not None else self.join.moment
        same = [each for each in self.bound if normal_form(list(each.left)) == normal_form(list(left))]
        return [(_span(same[0].right).of(self.text), _span(same[0].right))] if same else []

    def _next(self, time: list[Piece]) -> list[Piece]:
        """When the version behind one begins."""
        pieces: list[Piece] = [("LEAD(", None), *time, (") OVER (", None)]
        keys: list[list[Piece]] = [[self._piece(each)] for each in self.partition]
        keys += [[(f"{self.name}.{key.text}", key.span)] for key in self.join.using]
        for index, each in enumerate(keys):
            pieces += [("PARTITION BY " if index == 0 else ", ", None), *each]
        pieces += [(" ORDER BY " if keys else "ORDER BY ", None), *time]
        return [*pieces, (f"{' DESC' if self._backwards else ''})", None)]

    def _behind(self) -> list[Piece]:
        """The conditions that are added."""
        between = " AND " if self.join.condition else " ON "
        pieces: list[Piece] = []

        def add(*condition: Piece) -> None:
            nonlocal between
            pieces.extend([(between, None), *condition])
            between = " AND "

        for (key, own), token in zip(self.own_keys, self.join.using, strict=True):
            add((key, token.span), (f" = {self.name}.{own}", None))
        sign = self.match.sign if self.match is not None else ">="
        left = self._piece(self.match.left if self.match is not None else self.join.moment)
        right = self._time(inside=False)
        if self.match is None or self.join.match:
            add(left, (f" {sign} ", None), *right)
        for each in self.bound:
            if _within(each.span, self.join.match):
                add(self._piece(each.left), (f" {each.sign} ", None), self._piece(each.right))
        until = f"{self.name}.{self.until}"
        add((f"({until} IS NULL OR ", None), left, (f" {_BEFORE_NEXT[sign]} {until})", None))
        if self.join.tolerance:
            far, shift = ("<=", "+") if sign[0] == ">" else (">=", "-")
            add(left, (f" {far} ", None), *right, (f" {shift} ", None), self._piece(self.join.tolerance))
        return pieces

    def _time(self, inside: bool) -> list[Piece]:
        """The time of a version, inside its subquery or outside."""
        if self.match is None:
            return [(f"{self.name}.{EVENT_TIME if inside else self.since}", self.join.cuts[0])]
        text, span = self._piece(self.match.right)
        bare = len(self.match.right) == 1 and self.match.right[0].is_name
        return [(f"{self.name}.{text}" if bare else text, span)]

    def _piece(self, tokens: Sequence[Token]) -> Piece:
        span = _span(tokens)
        text = span.of(self.text)
        return text if _is_name(tokens) or tokens[0].upper == "INTERVAL" or len(tokens) == 1 else f"({text})", span


def _span(tokens: Sequence[Token]) -> Span:
    return Span(tokens[0].start, tokens[-1].end)


def _within(span: Span, tokens: Sequence[Token]) -> bool:
    return bool(tokens) and tokens[0].start <= span.start < tokens[-1].end


def _is_name(tokens: Sequence[Token]) -> bool:
    named = list(chains(tokens))
    return len(named) == 1 and named[0].span == _span(tokens)
