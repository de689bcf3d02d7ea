"""Columns and their types: a leaf that every other module may import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

#: A type as Spark writes it: `bigint`, `decimal(18,2)`, `struct<a:int>`.
SparkType: TypeAlias = str
#: Whole numbers, from short to long.
INTEGERS: tuple[SparkType, ...] = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Field:
    name: str
    type: SparkType


Schema: TypeAlias = tuple[Field, ...]
