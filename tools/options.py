"""Writes the options of every kind of source and sink into docs/connectors.md, from what the kinds declare.

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
BEGIN, END = "<!-- options: made by tools/options.py -->", "<!-- end of options -->"


def tables() -> str:
    """A heading and a table for each kind that has options."""
    sources = [kind for _, kind in sorted(registry.kinds().items()) if _ours(kind)]
    sinks = [kind for name in kinds.names() if (kind := kinds.find(name)) is not None]
    asking = ["### Tables that are asked by key: options\n", HEAD, *map(_row, ASKING_OPTIONS), ""]
    return "\n".join([*_tables("", sources), *asking, *_tables(" as a sink", sinks)])


def _ours(kind: Kind) -> bool:
    made = kind.stream or kind.table
    return bool(kind.options) and made is not None and made.__module__.startswith("anabranch.")


def _tables(what: str, kinds: Iterable[Kind]) -> Iterable[str]:
    for kind in kinds:
        yield f"### `{kind.name}`{what}: options\n\n{HEAD}"
        yield from (_row(option) for option in kind.options if option not in ASKING_OPTIONS)
        if set(ASKING_OPTIONS) <= set(kind.options):
            names = ", ".join(f"`{option.name}`" for option in ASKING_OPTIONS)
            yield f"| {names} | how it is asked by key: see below | | |"
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
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
