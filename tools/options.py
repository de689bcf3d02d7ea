"""Writes every kind of source and sink and its options into docs/connectors.md, from what the kinds declare.

python tools/options.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from anabranch.sinks import kinds
from anabranch.sources import registry
from anabranch.sources.lookup import ASKING_OPTIONS
from anabranch.sources.registry import Kind, Option

PAGE = Path(__file__).resolve().parent.parent / "docs" / "connectors.md"
HEAD = "| option | meaning | value | if not given |\n|---|---|---|---|"
BEGIN, END = "<!-- {}: made by tools/options.py -->", "<!-- end of {} -->"


def overview() -> str:
    """A row for each kind."""
    sources, sinks = _kinds()
    rows = ["| kind | what it is | where | for example | package |", "|---|---|---|---|---|"]
    for kind in sources:
        uses = ["streams"] if kind.stream else []
        uses += ["queries", "tables"] if kind.table or kind.files else []
        rows.append(_kind_row(kind, ", ".join(uses)))
    return "\n".join([*rows, *(_kind_row(kind, "sinks") for kind in sinks), ""])


def _kind_row(kind: Kind, where: str) -> str:
    extra = f"`anabranch[{kind.extra}]`" if kind.extra else ""
    return f"| `{kind.name}` | {kind.doc} | {where} | `{kind.example}` | {extra} |"


def _kinds() -> tuple[list[Kind], list[Kind]]:
    sources = [kind for _, kind in sorted(registry.kinds().items()) if _ours(kind)]
    return sources, [kind for name in kinds.names() if (kind := kinds.find(name)) is not None]


def tables() -> str:
    """A heading and a table for each kind that has options."""
    sources, sinks = _kinds()
    asking = ["### Tables that are looked up by key: options\n", HEAD, *map(_row, ASKING_OPTIONS), ""]
    return "\n".join([*_tables("", sources), *asking, *_tables(" as a sink", sinks)])


def _ours(kind: Kind) -> bool:
    made = kind.stream or kind.table
    return bool(kind.options) and made is not None and made.__module__.startswith("anabranch.")


def _tables(what: str, kinds: Iterable[Kind]) -> Iterable[str]:
    for kind in kinds:
        if not kind.options:
            continue
        yield f"### `{kind.name}`{what}: options\n\n{HEAD}"
        yield from (_row(option) for option in kind.options if option not in ASKING_OPTIONS)
        if set(ASKING_OPTIONS) <= set(kind.options):
            names = ", ".join(f"`{option.name}`" for option in ASKING_OPTIONS)
            yield f"| {names} | how it is looked up by key: see below | | |"
        yield ""


def _row(option: Option) -> str:
    value = ", ".join(f"`'{choice}'`" for choice in option.choices) or option.wanted
    value = "`env('NAME')` or `secret('name')`" if option.secret else value
    default = f"`{_literal(option.default)}`" if option.default is not None else ""
    cells = (f"`{option.name}`", option.doc, value, "an error" if option.required else default)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _literal(value: object) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    return str(value).lower() if isinstance(value, bool) else str(value)


def page(text: str) -> str:
    """The page with the tables as they have to be."""
    for name, made in (("kinds", overview()), ("options", tables())):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{made}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
