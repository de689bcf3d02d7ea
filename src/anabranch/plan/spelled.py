"""A query with all its columns by name, one by one: what a NATURAL JOIN is USING, what * stands for where that is not
plain, other names for the columns of a relation, and columns that have no name, or one that others have as well.

Nobody can read such columns by name; so they may have any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import aggregates_in
from anabranch.plan.catalog import Catalog
from anabranch.plan.inside import columns_of, using
from anabranch.plan.laterals import lateral_views
from anabranch.plan.rewriting import rewritten_throughout
from anabranch.plan.scope import Unfit, span_of
from anabranch.plan.stars import columns_shown, spelled, without_natural_joins
from anabranch.sql.calls import chains, generators
from anabranch.sql.lexer import Span, normal_form, quote_name, tokenize
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Item, Query, Relation, Select

#: A column that nobody reads by name.
_UNREAD = "__u{}"


def spelled_out(
    text: str, query: Query, catalog: Catalog, within: Callable[[Query], Span],
    kept: Callable[[Query], Span | None] = lambda _: None,
) -> tuple[str, Query]:  # fmt: skip
    """The part `within` of a query like this; the SELECT that is `kept` shows the names that it did."""

    def step(text: str, query: Query) -> list[Edit]:
        place, shown, binder = within(query), kept(query), Binder(text, catalog, query)
        for select, owner in reversed(list(query.selects())):
            if place.start <= select.span.start and select.span.end <= place.end:
                found = list(_next(select, owner, binder, named=select.span == shown))
                if found:
                    return found
        return []

    return rewritten_throughout(text, query, step)


def _next(select: Select, owner: Query, binder: Binder, *, named: bool) -> Iterator[Edit]:
    """The edits of one step for one SELECT."""
    for relation in select.relations:
        if relation.alias_columns:
            yield from _renamed(relation, binder)
            return
    natural = list(without_natural_joins(select, binder))
    if natural:
        yield from natural
    elif any(_spells(item, select, owner, binder) for item in select.items):
        yield from spelled(select, binder)
    elif not named:
        yield from _with_names(select)


def _renamed(relation: Relation, binder: Binder) -> Iterator[Edit]:
    """A relation with other names for its columns as a query that gives them."""
    if relation.reshaped or relation.alias_span is None:
        raise Unfit("other names for the columns of a relation that has others than it is made of")
    columns = columns_of(relation, binder)
    if len(columns) != len(relation.alias_columns):
        raise Unfit("other names for some of the columns of a relation")
    items = ", ".join(
        f"{quote_name(old)} AS {quote_name(new)}" for old, new in zip(columns, relation.alias_columns, strict=True)
    )
    name = quote_name(relation.alias or "")
    yield Edit(Span(relation.span.start, relation.span.start), f"(SELECT {items} FROM ", relation.span)
    rest = Span(relation.span.end, relation.alias_span.end)
    yield Edit(rest, f" AS {name}) AS {name}", relation.alias_span)


def _spells(item: Item, select: Select, owner: Query, binder: Binder) -> bool:
    """Whether a * is one that others do not understand: that of joins with columns in common, of rows that are made of
    one row, of what is grouped, and of columns with the same name."""
    if not item.star:
        return False
    groups = select.group or select.distinct or aggregates_in(select, owner)
    if groups or using(select.relations) or lateral_views(select, binder.text):
        return True
    names = [name.lower() for _, name in columns_shown(item, select, binder)]
    return len(set(names)) < len(names)


def _with_names(select: Select) -> Iterator[Edit]:
    """Names for the columns that have none, or that of another."""
    names = [_name(item) for item in select.items]
    for index, (item, name) in enumerate(zip(select.items, names, strict=True)):
        if item.star or any(generators(item.tokens)) or (name and name not in names[:index]):
            continue
        given = f" AS {quote_name(_UNREAD.format(index))}"
        yield Edit(Span(item.tokens[-1].end, item.span.end), given, item.span)


def _name(item: Item) -> str:
    named = list(chains(item.tokens))
    plain = len(named) == 1 and named[0].span == span_of(item.tokens)
    return (item.alias or (named[0].parts[-1] if plain else "")).lower()


def distinct_as_groups(text: str, select: Select, owner: Query) -> Iterator[Edit]:
    """SELECT DISTINCT as groups by all that is shown; nothing but the word where groups are different anyway."""
    first = select.items[0].span.start
    word = next(token for token in tokenize(text[select.span.start : first]) if token.upper == "DISTINCT")
    place = Span(select.span.start + word.start, select.span.start + word.end)
    if not select.group and not aggregates_in(select, owner):
        shown = [span_of(item.tokens).of(text) for item in select.items if any(chains(item.tokens))]
        last = select.where.span if select.where is not None else select.from_span
        if not shown or last is None or any(any(generators(item.tokens)) for item in select.items):
            raise Unfit("DISTINCT beside the trigger")
        yield Edit(Span(last.end, last.end), f" GROUP BY {', '.join(shown)}", place)
    else:
        known = {normal_form(list(item.tokens)) for item in select.items} | {_name(item) for item in select.items}
        if not select.group_plain or any(normal_form(list(each.tokens)) not in known for each in select.group):
            raise Unfit("DISTINCT beside the trigger, of groups that are not shown")
    yield Edit(place, "", place)
