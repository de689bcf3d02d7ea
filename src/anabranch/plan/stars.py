"""What a SELECT leaves unsaid of its columns: what * stands for, and what a NATURAL JOIN is USING.

    SELECT * FROM a NATURAL JOIN b

is, where a has id, k, v and b has id, v, w,

    SELECT `id`, `v`, `a`.`k`, `b`.`w` FROM a JOIN b USING (`id`, `v`)

Columns that relations have in common come first, once, as Spark shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.plan.bind import Binder
from anabranch.plan.inside import columns_of, is_shown, joined_using, qualified
from anabranch.plan.laterals import end_of, lateral_views
from anabranch.plan.scope import Unfit
from anabranch.sql.lexer import Span, quote_name, tokenize
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Item, Relation, Select

#: A column as it is written, and its name.
_Columns = list[tuple[str, str]]


def spelled(select: Select, binder: Binder) -> Iterator[Edit]:
    """Each * of a SELECT as the columns that it stands for."""
    for item in select.items:
        if item.star:
            found = columns_shown(item, select, binder)
            if not found:
                raise Unfit("* of nothing")
            yield Edit(item.span, ", ".join(text for text, _ in found), item.span)


def columns_shown(item: Item, select: Select, binder: Binder) -> _Columns:
    """What * or t.* stands for."""
    star = next(index for index, token in enumerate(item.tokens) if token.text == "*")
    if not star:
        found = _all(select.relations, binder)
        views = lateral_views(select, binder.text)
        found += [(f"{quote_name(each.name)}.{quote_name(c)}", c) for each in views for c in each.certain]
    else:
        name = item.tokens[0].name.lower()
        mine = [each for each in select.relations if (each.exposed or "").lower() == name and is_shown(each)]
        found = [(qualified(each, column), column) for each in mine for column in columns_of(each, binder)]
        for view in lateral_views(select, binder.text):
            if view.name.lower() == name:
                found += [(f"{quote_name(view.name)}.{quote_name(column)}", column) for column in view.certain]
    return [(text, column) for text, column in found if column.lower() not in item.left_out]


def _all(relations: Sequence[Relation], binder: Binder) -> _Columns:
    """The columns of a FROM clause, those that joins are USING once and first."""
    found: _Columns = []
    for relation in relations:
        if not is_shown(relation):
            continue
        common = joined_using(relation)
        lower = [each.lower() for each in common]
        own = [(qualified(relation, name), name) for name in columns_of(relation, binder)]
        rest = [each for each in (*found, *own) if each[1].lower() not in lower]
        names = {name.lower(): name for _, name in (*own, *found)}
        found = [(quote_name(names.get(each, each)), names.get(each, each)) for each in lower] + rest
    return found


def without_natural_joins(select: Select, binder: Binder) -> Iterator[Edit]:
    """The first NATURAL JOIN of a SELECT as one that says what it is USING; without columns in common it is CROSS."""
    for index, relation in enumerate(select.relations):
        if "NATURAL" not in relation.join.split():
            continue
        before = _all(select.relations[:index], binder)
        own = {name.lower() for name in columns_of(relation, binder)}
        common = list(dict.fromkeys(name for _, name in before if name.lower() in own))
        start = end_of(select.relations[index - 1])
        words = tokenize(binder.text[start : relation.span.start])
        natural = next(token for token in words if token.upper == "NATURAL")
        yield Edit(Span(start + natural.start, start + natural.end), "", relation.span)
        at = Span(end_of(relation), end_of(relation))
        if common:
            yield Edit(at, f" USING ({', '.join(map(quote_name, common))})", relation.span)
        else:
            yield Edit(at, " ON true", relation.span)
        return
