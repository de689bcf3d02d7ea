"""Definitions as JSON, as the ledger stores them. Reading migrates those of older homes (see `migrations`); writing
always uses this format."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from anabranch.algebra.rules import Rule, rule_from_json, rule_to_json
from anabranch.plan.definitions import Function, Sink, Stream, Table
from anabranch.plan.migrations import FORMAT, migrated
from anabranch.plan.states import Panes, Rows
from anabranch.plan.view import View

Object = Stream | Table | Panes | Rows | View | Sink | Function

Decode = Callable[[Any], Any]


def to_json(definition: Object) -> dict[str, Any]:
    values = {"kind": definition.kind, "format": FORMAT, **asdict(definition)}
    if isinstance(definition, Stream):
        values["rule"] = rule_to_json(definition.rule)
    return values


def from_json(values: Mapping[str, Any]) -> Object:
    values = migrated(values)
    parts = {key: each for key, each in values.items() if key not in ("kind", "format")}
    made: Object = _DECODERS[values["kind"]](parts)
    return made


@cache
def _decoder(type_: Any) -> Decode:
    """The function that decodes a value of a type from JSON."""
    if type_ == Rule | None:
        return rule_from_json
    if is_dataclass(type_):
        return _record(type_)
    origin, inner = get_origin(type_), get_args(type_)
    if origin in (Union, types.UnionType):
        (known,) = (each for each in inner if each is not type(None))
        decode = _decoder(known)
        return lambda value: None if value is None else decode(value)
    if origin is tuple and inner[-1] is Ellipsis:
        each = _decoder(inner[0])
        return lambda values: tuple(map(each, values))
    if origin is tuple:
        decoders = tuple(map(_decoder, inner))
        return lambda values: tuple(decode(value) for decode, value in zip(decoders, values, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        value_of = _decoder(inner[1])
        return lambda values: {key: value_of(value) for key, value in values.items()}
    return lambda value: value


def _record(cls: Any) -> Decode:
    hints = get_type_hints(cls)
    decoders = {each.name: _decoder(hints[each.name]) for each in fields(cls)}
    return lambda values: cls(**{name: decoders[name](value) for name, value in values.items()})


_DECODERS: dict[str, Decode] = {cls.kind: _record(cls) for cls in (Stream, Table, Panes, Rows, View, Sink, Function)}
