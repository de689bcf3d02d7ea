"""The grammar of joins with versions: ASOF JOIN, and JOIN ... FOR SYSTEM_TIME AS OF the time of another relation.

    FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) TOLERANCE INTERVAL 5 MINUTES ON t.item = q.item
    FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency

This finds the operand of each comparison that is of the versions, and the comparison that selects the version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.calls import chains, closing, conjuncts, only_name
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, SYMBOL, Token
from anabranch.sql.syntax import Comparison, Expression, Relation, Versions
from anabranch.sql.terms import ends_value, meant, misspelt, take_expression
from anabranch.sql.text import Span

_FLIPPED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
_EQUAL = ("=", "==", "<=>")


def at_match(cursor: Cursor) -> bool:
    """Whether MATCH_CONDITION (...) or TOLERANCE comes next, not an alias."""
    return cursor.at("MATCH_CONDITION", "(") or at_tolerance(cursor)


def at_tolerance(cursor: Cursor) -> bool:
    return cursor.at("TOLERANCE") and (cursor.ahead(1).upper == "INTERVAL" or cursor.ahead(1).kind == NUMBER)


def take_versions(cursor: Cursor, words: Span, kinds: Sequence[str], relation: Relation) -> Relation:
    """A relation of versions with its clauses: MATCH_CONDITION, TOLERANCE, and ON or USING."""
    return _Reader(cursor, words, relation).take(frozenset(kinds))


class _Reader:
    def __init__(self, cursor: Cursor, words: Span, relation: Relation) -> None:
        self.cursor = cursor
        self.words = words
        self.relation = relation
        self.name = relation.exposed
        self.tolerance: Expression | None = None

    def take(self, kinds: frozenset[str]) -> Relation:
        cursor = self.cursor
        if kinds - {"ASOF", "JOIN", "INNER", "LEFT", "OUTER"}:
            raise NotSupported("a join with versions is an inner or a LEFT join", text=cursor.text, at=self.words)
        match = self._match()
        self._tolerance()
        relation, condition = self._condition()
        self._tolerance()
        comparisons = [self._comparison(each) for each in self._pieces(condition)] if condition else []
        keys = tuple(each for each in comparisons if each.sign in _EQUAL)
        rest = [each for each in comparisons if each.sign in _FLIPPED]
        time, bounds = self._time(match, rest)
        left = "LEFT" in kinds or (match is not None and "INNER" not in kinds)
        versions = Versions(self.words, keys, time, tuple(bounds), match, relation.moment, self.tolerance)
        return replace(relation, join="LEFT JOIN" if left else "JOIN", versions=versions)

    # ---- clauses

    def _match(self) -> Expression | None:
        cursor = self.cursor
        self._refuse_misspelt("MATCH_CONDITION", "(")
        if not cursor.at("MATCH_CONDITION", "("):
            return None
        word = cursor.advance()
        if self.relation.moment is not None:
            raise self._wrong(word.span, "FOR SYSTEM_TIME AS OF chooses the version already")
        cursor.advance()
        first = cursor.index
        cursor.close_bracket()
        tokens = tuple(cursor.tokens[first : cursor.index - 1])
        if not tokens:
            span = Span(word.start, cursor.previous.end)
            raise self._wrong(span, "expected a comparison of times", "as in (a.ts >= b.ts)")
        return Expression(_span(tokens), tokens)

    def _condition(self) -> tuple[Relation, tuple[Token, ...]]:
        """ON or USING; and the condition of ON, without a TOLERANCE after it."""
        cursor, relation = self.cursor, self.relation
        if not cursor.at("ON") and not cursor.at("USING"):
            return relation, ()
        word, first = cursor.advance(), cursor.index
        if word.upper == "USING":
            cursor.expect("(")
            cursor.close_bracket()
            tokens = tuple(cursor.tokens[first : cursor.index])
        else:
            tokens = take_expression(cursor, "a join condition").tokens
            cut = next((i for i in range(len(tokens)) if self._begins_tolerance(tokens, i)), len(tokens))
            cursor.index -= len(tokens) - cut
            tokens = tokens[:cut]
            if not tokens:
                raise cursor.problem("expected a join condition")
        made = replace(relation, condition=Span(word.start, tokens[-1].end), condition_tokens=(word, *tokens))
        return made, () if word.upper == "USING" else tokens

    def _begins_tolerance(self, tokens: Sequence[Token], index: int) -> bool:
        if index == 0 or not ends_value(tokens[index - 1]):
            return False
        cursor = Cursor(self.cursor.text, [*tokens, Token(END, "", tokens[-1].end, tokens[-1].end)], index)
        depth = sum((t.text in OPENING) - (t.text in CLOSING) for t in tokens[:index] if t.kind == SYMBOL)
        self._refuse_misspelt("TOLERANCE", "INTERVAL", cursor)
        return depth == 0 and at_tolerance(cursor)

    def _tolerance(self) -> None:
        self._refuse_misspelt("TOLERANCE", "INTERVAL")
        if at_tolerance(self.cursor):
            self.cursor.advance()
            self.tolerance = take_expression(self.cursor, "how old a version can be")

    def _refuse_misspelt(self, keyword: str, behind: str, cursor: Cursor | None = None) -> None:
        cursor = cursor or self.cursor
        if cursor.ahead(1).upper == behind and misspelt(cursor.current, (keyword,)) is not None:
            raise meant(cursor.text, cursor.current, keyword)

    # ---- comparisons

    def _pieces(self, tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
        """The conditions between ANDs, those in brackets too."""
        while tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1 and len(tokens) > 2:
            tokens = tokens[1:-1]
        pieces = list(conjuncts(tokens))
        if not all(pieces):
            last = tokens[-1] if not pieces[-1] else next(token for token in tokens if token.upper == "AND")
            raise self._wrong(last.span, "something is missing beside AND")
        if not pieces:
            hint = "write conditions with AND"
            raise self._wrong(_span(tokens), "the version cannot depend on alternatives", hint)
        for piece in pieces:
            nested = piece[0].text == "(" and closing(piece, 0) == len(piece) - 1
            yield from self._pieces(piece) if nested else [piece]

    def _comparison(self, tokens: Sequence[Token], positional: bool = False) -> Comparison:
        """A comparison between the inputs, turned so that the versions are the right operand."""
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
        left, right = tuple(tokens[: at[0]]), tuple(tokens[at[0] + 1 :])
        sides = self._side(left), self._side(right)
        if sides in (("versions", "other"), ("versions", ""), ("", "other")):
            return Comparison(right, _FLIPPED.get(sign, sign), left, span)
        if sides in (("other", "versions"), ("other", ""), ("", "versions")) or (positional and sides == ("", "")):
            return Comparison(left, sign, right, span)
        if sides == ("", ""):
            what = "it is not clear which side has the versions"
        else:
            what = f"one side has to be of {self.name or 'the versions'}, and one not"
        hint = f"columns of {self.name} are written {self.name}.column" if self.name else "give the versions an alias"
        raise self._wrong(span, what, hint)

    def _side(self, tokens: Sequence[Token]) -> str:
        """`versions`, `other` or `both`, by the qualifiers of the columns; empty without qualifiers."""
        qualifiers = [chain.parts[0] for chain in chains(tokens) if len(chain.parts) > 1]
        own = [self.name is not None and each.lower() == self.name.lower() for each in qualifiers]
        return "" if not own else "versions" if all(own) else "both" if any(own) else "other"

    def _time(self, match: Expression | None, rest: list[Comparison]) -> tuple[Comparison, list[Comparison]]:
        """The comparison of times that selects the version, and the bounds on its distance."""
        moment = self.relation.moment
        if moment is not None:
            if self._side(moment.tokens) == "versions":
                raise self._wrong(_span(moment.tokens), "the time has to be of another relation")
            return Comparison(moment.tokens, ">=", (), moment.span), self._bounds(">=", rest)
        if match is not None:
            first, *others = self._pieces(match.tokens)
            found = self._comparison(first, positional=True)
            more = [self._comparison(piece) for piece in others]
            if found.sign not in _FLIPPED:
                raise self._wrong(found.span, "times are compared by >=, >, <= or <", "put equal columns into ON")
            return found, self._bounds(found.sign, [*more, *rest])
        plain = [each for each in rest if only_name(each.left) and only_name(each.right)] if len(rest) > 1 else rest
        if len(plain) != 1:
            name = self.name or "b"
            raise self._wrong(
                rest[1].span if rest else self.words,
                "an ASOF JOIN compares one time with another" + ("" if plain else ", and here is no such comparison"),
                f"as in MATCH_CONDITION (a.ts >= {name}.ts)" + ("" if rest else "; an alias asof needs AS"),
            )
        return plain[0], self._bounds(plain[0].sign, [each for each in rest if each is not plain[0]])

    def _bounds(self, sign: str, rest: list[Comparison]) -> list[Comparison]:
        for each in rest:
            if each.sign[0] == sign[0] or each.sign not in _FLIPPED:
                raise self._wrong(
                    each.span,
                    "one comparison of times picks the version",
                    "TOLERANCE INTERVAL 5 MINUTES limits how far from it a version can be",
                )
        return rest

    def _wrong(self, span: Span, message: str, hint: str | None = None) -> SyntaxProblem:
        return SyntaxProblem(message, text=self.cursor.text, at=span, hint=hint)


def _span(tokens: Sequence[Token]) -> Span:
    return Span(tokens[0].start, tokens[-1].end)
