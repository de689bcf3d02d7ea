"""The functions with the same meaning in DuckDB: by name and types of arguments, each with its text.

A signature names the kinds of its arguments, its text and the kind of its value. An argument with `!` is a literal:
`text!` is not empty, `index!` is at least 1, `size!` at least 0, both an INT; `whole!` is at least 1.
A function without a signature is left to Spark. One that agrees with Spark's only for some values is written so that
DuckDB fails for others; then Spark computes it. tests/render/test_duckdb_functions.py runs every signature in both
engines over hostile values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anabranch.render.duckdb_kinds import (
    BITS,
    BOOLEAN,
    COUNT,
    DATE,
    DECIMAL,
    DOUBLE,
    DUCKDB_WHOLE,
    FLOAT,
    MICROS,
    MOST_DIGITS,
    ROWS,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    WHOLE,
    Kind,
    as_decimal,
    common,
    comparable,
    duckdb_type_of,
    whole,
)
from anabranch.xxhash import SEED, arrow_rows


@dataclass(frozen=True)
class Value:
    """A value written for DuckDB. `bound`: a column, or a column plus or minus a number; `literal`: its value."""

    text: str
    kind: Kind
    bound: bool = False
    literal: str | int | None = None


Result = Kind | Callable[[Sequence[Kind]], Kind]


@dataclass(frozen=True)
class Signature:
    """A function for arguments of these kinds, and its value."""

    name: str
    arguments: tuple[str, ...]
    text: str
    result: Result
    fails: bool = False  # it can fail in Spark

    def fits(self, values: Sequence[Value]) -> bool:
        return len(values) == len(self.arguments) and all(map(_fits, values, self.arguments))

    def call(self, values: Sequence[Value]) -> Value:
        kinds = [value.kind for value in values]
        made = self.result if isinstance(self.result, Kind) else self.result(kinds)
        fails = self.fails or any(kind.fails for kind in kinds)
        return Value(self.text.format(*(value.text for value in values)), replace(made, fails=made.fails or fails))


def _fits(value: Value, wanted: str) -> bool:
    if wanted.endswith("!"):
        literal = value.literal
        if wanted == "text!":
            return isinstance(literal, str) and literal != "" and "\0" not in literal
        least, bits = {"index!": (1, 31), "size!": (0, 31), "whole!": (1, 63)}[wanted]
        return isinstance(literal, int) and least <= literal < 1 << bits
    if wanted in ("int", "bigint"):
        return value.kind.family == WHOLE and (value.kind.width == BITS["bigint"]) == (wanted == "bigint")
    if wanted == "small":
        return value.kind.family == WHOLE and value.kind.bits <= 31
    return value.kind.family == wanted


_STRING, _BOOLEAN, _DOUBLE = Kind(STRING), Kind(BOOLEAN), Kind(DOUBLE)
_DATE, _TIMESTAMP = Kind(DATE), Kind(TIMESTAMP)
_INT, _BIGINT, _MICROS = whole("int"), whole("bigint"), whole("bigint", MICROS)


def _small(bits: int) -> Kind:
    return whole("int", bits)


def _same(kinds: Sequence[Kind]) -> Kind:
    return kinds[0]


def _unscaled(kinds: Sequence[Kind]) -> Kind:
    """A decimal without its fraction digits, and with one more digit for a carry."""
    return Kind(DECIMAL, min(MOST_DIGITS, kinds[0].width - kinds[0].bits + 1), 0)


#: A time in UTC without a zone, so that DuckDB uses the same calendar as Spark; and a date as such a time.
_AT = {TIMESTAMP: "make_timestamp(epoch_us({0}))", DATE: "{0}"}
_FIELDS = {
    "year": ("year({0})", 20), "month": ("month({0})", 4), "day": ("day({0})", 5), "dayofmonth": ("day({0})", 5),
    "quarter": ("quarter({0})", 3), "dayofyear": ("dayofyear({0})", 9), "weekofyear": ("weekofyear({0})", 6),
    "dayofweek": ("(dayofweek({0}) + 1)", 3), "weekday": ("(isodow({0}) - 1)", 3), "hour": ("hour({0})", 5),
    "minute": ("minute({0})", 6), "second": ("second({0})", 6),
}  # fmt: skip
_TRUNCATED = (
    "year", "yyyy", "yy", "quarter", "month", "mon", "mm", "week", "day", "dd", "hour", "minute", "second",
    "millisecond", "microsecond",
)  # fmt: skip


def _times() -> list[Signature]:
    found = []
    for name, (text, bits) in _FIELDS.items():
        for family, at in _AT.items():
            if family == TIMESTAMP or bits not in (5, 6) or name in ("day", "dayofmonth", "weekofyear"):
                written = f"CAST({text.format(at)} AS INTEGER)"
                found.append(Signature(name, (family,), written, _small(bits)))
    seconds = whole("bigint", 39)
    found.append(Signature("unix_seconds", (TIMESTAMP,), "__floor_divide(epoch_us({0}), 1000000)", seconds))
    for name in ("unix_timestamp", "to_unix_timestamp"):  # which truncate the fraction, also before 1970
        found.append(Signature(name, (TIMESTAMP,), "(epoch_us({0}) // 1000000)", seconds))
    return found


_SIGNATURES: tuple[Signature, ...] = (
    # texts
    Signature("upper", (STRING,), "upper(__ascii({0}))", _STRING),
    Signature("ucase", (STRING,), "upper(__ascii({0}))", _STRING),
    Signature("lower", (STRING,), "lower(__ascii({0}))", _STRING),
    Signature("lcase", (STRING,), "lower(__ascii({0}))", _STRING),
    Signature("reverse", (STRING,), "reverse(__ascii({0}))", _STRING),
    *(
        Signature(name, (STRING,), "CAST(length({0}) AS INTEGER)", _INT)
        for name in ("length", "char_length", "character_length", "len")
    ),
    Signature("octet_length", (STRING,), "CAST(strlen({0}) AS INTEGER)", _INT),
    Signature("bit_length", (STRING,), "CAST(strlen({0}) * 8 AS INTEGER)", _INT),
    Signature("trim", (STRING,), "trim({0}, ' ')", _STRING),
    Signature("ltrim", (STRING,), "ltrim({0}, ' ')", _STRING),
    Signature("rtrim", (STRING,), "rtrim({0}, ' ')", _STRING),
    *(Signature(name, (STRING, "index!"), "substring({0}, {1})", _STRING) for name in ("substring", "substr")),
    *(
        Signature(name, (STRING, "index!", "size!"), "substring({0}, {1}, {2})", _STRING)
        for name in ("substring", "substr")
    ),
    Signature("left", (STRING, "size!"), "left({0}, {1})", _STRING),
    Signature("right", (STRING, "index!"), "right({0}, {1})", _STRING),
    Signature("replace", (STRING, "text!", STRING), "replace({0}, {1}, {2})", _STRING),
    Signature("replace", (STRING, "text!"), "replace({0}, {1}, '')", _STRING),
    Signature("repeat", (STRING, "size!"), "repeat({0}, {1})", _STRING),
    Signature("instr", (STRING, "text!"), "CAST(instr({0}, {1}) AS INTEGER)", _INT),
    Signature("locate", ("text!", STRING), "CAST(instr({1}, {0}) AS INTEGER)", _INT),
    Signature("position", ("text!", STRING), "CAST(instr({1}, {0}) AS INTEGER)", _INT),
    Signature("startswith", (STRING, STRING), "starts_with({0}, {1})", _BOOLEAN),
    Signature("endswith", (STRING, STRING), "suffix({0}, {1})", _BOOLEAN),
    Signature("contains", (STRING, STRING), "contains({0}, {1})", _BOOLEAN),
    Signature("lpad", (STRING, "size!", "text!"), "lpad(__ascii({0}), {1}, __ascii({2}))", _STRING),
    Signature("rpad", (STRING, "size!", "text!"), "rpad(__ascii({0}), {1}, __ascii({2}))", _STRING),
    Signature("translate", (STRING, "text!", "text!"), "translate(__ascii({0}), {1}, {2})", _STRING),
    Signature("split_part", (STRING, "text!", "index!"), "split_part({0}, {1}, {2})", _STRING),
    Signature("ascii", (STRING,), "CAST(ascii(__ascii({0})) AS INTEGER)", _small(8)),
    Signature("md5", (STRING,), "md5({0})", _STRING),
    Signature("sha1", (STRING,), "sha1({0})", _STRING),
    Signature("sha", (STRING,), "sha1({0})", _STRING),
    Signature("bin", (WHOLE,), "bin(CAST({0} AS BIGINT))", _STRING),
    *(
        Signature("xxhash64", (kind,), f"coalesce(__xxhash_{stored}({text}), {SEED})", _BIGINT)
        for kind, stored, text in (
            ("int", "int", "CAST({0} AS INTEGER)"), ("bigint", "bigint", "CAST({0} AS BIGINT)"),
            (STRING, "text", "{0}"), (BOOLEAN, "int", "CAST({0} AS INTEGER)"),
            (DATE, "int", "CAST({0} - DATE '1970-01-01' AS INTEGER)"), (TIMESTAMP, "bigint", "epoch_us({0})"),
        )
        if arrow_rows()
    ),
    # numbers
    Signature("abs", (WHOLE,), "abs({0})", lambda kinds: replace(kinds[0], fails=kinds[0].bits == kinds[0].width)),
    Signature("abs", (DOUBLE,), "abs({0})", _DOUBLE),
    Signature("abs", (DECIMAL,), "abs({0})", _same),
    Signature("sign", (WHOLE,), "CAST(sign({0}) AS DOUBLE)", _DOUBLE),
    Signature("signum", (WHOLE,), "CAST(sign({0}) AS DOUBLE)", _DOUBLE),
    Signature("negative", (DOUBLE,), "(- {0})", _DOUBLE),
    Signature("positive", (WHOLE,), "{0}", _same),
    Signature("positive", (DOUBLE,), "{0}", _DOUBLE),
    *(Signature(name, (WHOLE,), "CAST({0} AS BIGINT)", _BIGINT) for name in ("ceil", "ceiling", "floor")),
    Signature("ceil", (DOUBLE,), "CAST(ceil({0}) AS BIGINT)", _BIGINT),
    Signature("ceiling", (DOUBLE,), "CAST(ceil({0}) AS BIGINT)", _BIGINT),
    Signature("floor", (DOUBLE,), "CAST(floor({0}) AS BIGINT)", _BIGINT),
    Signature("round", (WHOLE,), "{0}", _same),
    Signature("round", (DOUBLE,), "round({0})", _DOUBLE),
    Signature("rint", (DOUBLE,), "round_even({0}, 0)", _DOUBLE),
    Signature("sqrt", (DOUBLE,), "sqrt({0})", _DOUBLE),
    Signature("sqrt", (WHOLE,), "sqrt(CAST({0} AS DOUBLE))", _DOUBLE),
    Signature("isnan", (DOUBLE,), "coalesce(isnan({0}), false)", _BOOLEAN),
    Signature("bit_count", (WHOLE,), "CAST(bit_count(CAST({0} AS BIGINT)) AS INTEGER)", _small(7)),
    Signature("pmod", (WHOLE, "whole!"), "pmod({0}, {1})", lambda kinds: common(kinds)),
    # times
    *_times(),
    Signature("unix_micros", (TIMESTAMP,), "epoch_us({0})", _MICROS),
    Signature("unix_millis", (TIMESTAMP,), "__floor_divide(epoch_us({0}), 1000)", whole("bigint", 49)),
    Signature("unix_date", (DATE,), "CAST(date_diff('day', DATE '1970-01-01', {0}) AS INTEGER)", _small(28)),
    Signature("timestamp_micros", (WHOLE,), "make_timestamptz({0})", _TIMESTAMP),
    Signature("timestamp_millis", ("small",), "make_timestamptz(CAST({0} AS BIGINT) * 1000)", _TIMESTAMP),
    Signature("timestamp_seconds", ("small",), "make_timestamptz(CAST({0} AS BIGINT) * 1000000)", _TIMESTAMP),
    Signature("to_date", (TIMESTAMP,), "CAST(make_timestamp(epoch_us({0})) AS DATE)", _DATE),
    Signature("to_date", (DATE,), "{0}", _DATE),
    Signature("date", (TIMESTAMP,), "CAST(make_timestamp(epoch_us({0})) AS DATE)", _DATE),
    Signature("to_timestamp", (TIMESTAMP,), "{0}", _TIMESTAMP),
    Signature("to_timestamp", (DATE,), "make_timestamptz(epoch_us(CAST({0} AS TIMESTAMP)))", _TIMESTAMP),
    Signature("last_day", (DATE,), "last_day({0})", _DATE),
    *(
        Signature(name, (DATE, DATE), "CAST(date_diff('day', {1}, {0}) AS INTEGER)", _small(29))
        for name in ("datediff", "date_diff")
    ),
    *(Signature(name, (DATE, "size!"), "CAST({0} + {1} AS DATE)", _DATE, True) for name in ("date_add", "dateadd")),
    Signature("date_sub", (DATE, "size!"), "CAST({0} - {1} AS DATE)", _DATE, True),
    Signature("add_months", (DATE, "size!"), "CAST({0} + to_months({1}) AS DATE)", _DATE, True),
)  # fmt: skip


def known() -> tuple[Signature, ...]:
    """Every signature, for tests and docs."""
    return _SIGNATURES


_BY_NAME: dict[str, list[Signature]] = {}
for _each in _SIGNATURES:
    _BY_NAME.setdefault(_each.name, []).append(_each)


def call(name: str, values: Sequence[Value]) -> Value | None:
    """A call of a scalar function of Spark, or None if it is left to Spark."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(values)
    return next((each.call(values) for each in _BY_NAME.get(name, ()) if each.fits(values)), None)


# ---- functions whose arguments have one common kind


def _chosen(text: str, least: int = 1) -> Callable[[Sequence[Value]], Value | None]:
    """A function that returns one of its arguments."""

    def made(values: Sequence[Value]) -> Value | None:
        kind = common(value.kind for value in values)
        if len(values) < least or kind == UNKNOWN:
            return None
        return Value(text.format(", ".join(value.text for value in values)), kind)

    return made


def _ordered(text: str) -> Callable[[Sequence[Value]], Value | None]:
    """GREATEST and LEAST, which ignore NULL. Of 0.0 and -0.0, which are equal, either may be returned."""

    def made(values: Sequence[Value]) -> Value | None:
        kind = common(value.kind for value in values)
        if len(values) < 2 or kind.family in (UNKNOWN.family, FLOAT, DOUBLE, BOOLEAN) or kind.fails:
            return None
        return Value(text.format(", ".join(value.text for value in values)), kind)

    return made


def _if(values: Sequence[Value]) -> Value | None:
    if len(values) != 3 or values[0].kind.family != BOOLEAN:
        return None
    kind = common(value.kind for value in values[1:])
    condition, then, other = (value.text for value in values)
    return None if kind == UNKNOWN else Value(f"CASE WHEN {condition} THEN {then} ELSE {other} END", kind)


def _nvl2(values: Sequence[Value]) -> Value | None:
    if len(values) != 3:
        return None
    condition = Value(f"({values[0].text} IS NOT NULL)", _BOOLEAN)
    return _if((condition, *values[1:]))


def _nullif(values: Sequence[Value]) -> Value | None:
    if len(values) != 2 or not comparable(values[0].kind, values[1].kind) or any(v.kind.fails for v in values):
        return None
    if values[0].kind.family != values[1].kind.family or DOUBLE in (values[0].kind.family, values[1].kind.family):
        return None
    return Value(f"nullif({values[0].text}, {values[1].text})", values[0].kind)


def _is_null(text: str) -> Callable[[Sequence[Value]], Value | None]:
    return lambda values: Value(text.format(values[0].text), _BOOLEAN) if len(values) == 1 else None


def _concat(values: Sequence[Value]) -> Value | None:
    if not values or any(value.kind.family != STRING for value in values):
        return None
    return Value(f"({' || '.join(value.text for value in values)})", _STRING)


def _concat_ws(values: Sequence[Value]) -> Value | None:
    if len(values) < 2 or any(value.kind.family != STRING for value in values):
        return None
    return Value(f"concat_ws({', '.join(value.text for value in values)})", _STRING)


def _decimal_part(name: str) -> Callable[[Sequence[Value]], Value | None]:
    """CEIL, FLOOR and ROUND of decimals and of other numbers."""

    def made(values: Sequence[Value]) -> Value | None:
        if values and values[0].kind.family == DECIMAL:
            return _of_decimal(name, values)
        return next((each.call(values) for each in _BY_NAME[name] if each.fits(values)), None)

    return made


def _of_decimal(name: str, values: Sequence[Value]) -> Value | None:
    kind = values[0].kind
    kept = values[1].literal if len(values) == 2 and name == "round" else 0
    if len(values) > 2 or (len(values) == 2 and name != "round") or not isinstance(kept, int) or kept < 0:
        return None
    if kept >= kind.bits or kind.bits == 0:
        return None
    made = _unscaled([kind]) if kept == 0 else Kind(DECIMAL, kind.width - kind.bits + kept + 1, kept)
    if made.width > MOST_DIGITS or made.width - made.bits <= kind.width - kind.bits:
        return None
    rounded = f"round({values[0].text}, {kept})" if name == "round" else f"{name.removesuffix('ing')}({values[0].text})"
    return Value(f"CAST({rounded} AS {duckdb_type_of(made)})", replace(made, fails=kind.fails))


def _truncated(values: Sequence[Value]) -> Value | None:
    """DATE_TRUNC by a unit that both engines have, in UTC."""
    if len(values) != 2 or values[1].kind.family != TIMESTAMP or not isinstance(values[0].literal, str):
        return None
    unit = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}
    name = values[0].literal.lower()
    if name not in _TRUNCATED:
        return None
    at = f"date_trunc('{unit.get(name, name)}', make_timestamp(epoch_us({values[1].text})))"
    return Value(f"make_timestamptz(epoch_us({at}))", _TIMESTAMP)


def _truncated_day(values: Sequence[Value]) -> Value | None:
    if len(values) != 2 or values[0].kind.family != DATE or not isinstance(values[1].literal, str):
        return None
    unit = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month"}
    name = unit.get(values[1].literal.lower(), values[1].literal.lower())
    if name not in ("year", "quarter", "month", "week"):
        return None
    return Value(f"CAST(date_trunc('{name}', {values[0].text}) AS DATE)", _DATE)


def _date_part(values: Sequence[Value]) -> Value | None:
    if len(values) != 2 or not isinstance(values[0].literal, str):
        return None
    name = values[0].literal.lower()
    return call(name, values[1:]) if name in ("year", "quarter", "month", "day", "hour", "minute") else None


_SPECIAL: dict[str, Callable[[Sequence[Value]], Value | None]] = {
    "coalesce": _chosen("coalesce({0})"),
    "nvl": _chosen("coalesce({0})", 2),
    "ifnull": _chosen("coalesce({0})", 2),
    "greatest": _ordered("greatest({0})"),
    "least": _ordered("least({0})"),
    "if": _if,
    "nvl2": _nvl2,
    "nullif": _nullif,
    "isnull": _is_null("({0} IS NULL)"),
    "isnotnull": _is_null("({0} IS NOT NULL)"),
    "concat": _concat,
    "concat_ws": _concat_ws,
    "ceil": _decimal_part("ceil"),
    "ceiling": _decimal_part("ceiling"),
    "floor": _decimal_part("floor"),
    "round": _decimal_part("round"),
    "date_trunc": _truncated,
    "trunc": _truncated_day,
    "date_part": _date_part,
    "datepart": _date_part,
}


# ---- operators


def arithmetic(sign: str, one: Value, other: Value) -> Value | None:
    """`+`, `-`, `*`, `/`, `%` and DIV of two numbers; the kinds are Spark's in ANSI mode."""
    families = {one.kind.family, other.kind.family}
    fails = one.kind.fails or other.kind.fails
    if sign in ("/", "%", "div"):
        return _division(sign, one, other, families)
    text = f"({one.text} {sign} {other.text})"
    if families == {WHOLE}:
        width = max(one.kind.width, other.kind.width)
        needed = one.kind.bits + other.kind.bits if sign == "*" else max(one.kind.bits, other.kind.bits) + 1
        bound = sign != "*" and one.bound and isinstance(other.literal, int)
        return Value(text, Kind(WHOLE, width, min(needed, width), fails or needed > width), bound)
    if DOUBLE in families and families <= {WHOLE, DOUBLE}:
        return Value(text, replace(_DOUBLE, fails=fails))
    if DECIMAL in families and families <= {WHOLE, DECIMAL}:
        return _of_decimals(sign, one, other)
    return None


def _of_decimals(sign: str, one: Value, other: Value) -> Value | None:
    """A sum, difference or product of decimals whose digits all fit: then nothing is rounded or overflows."""
    left, right = as_decimal(one.kind), as_decimal(other.kind)
    if sign == "*":
        made = Kind(DECIMAL, left.width + right.width + 1, left.bits + right.bits)
    else:
        scale = max(left.bits, right.bits)
        made = Kind(DECIMAL, max(left.width - left.bits, right.width - right.bits) + scale + 1, scale)
    if made.width > MOST_DIGITS or isinstance(one.literal, int) or isinstance(other.literal, int):
        return None  # Spark knows the digits of a literal
    sides = [
        value.text
        if value.kind.family == DECIMAL
        else f"CAST({value.text} AS {duckdb_type_of(as_decimal(value.kind))})"
        for value in (one, other)
    ]
    # DuckDB multiplies in the width of its arguments, so these are widened first.
    room = f"DECIMAL({made.width},{{}})"
    if sign == "*":
        sides = [f"CAST({text} AS {room.format(kind.bits)})" for text, kind in zip(sides, (left, right), strict=True)]
        if made.width + left.bits > MOST_DIGITS or made.width + right.bits > MOST_DIGITS:
            return None
    fails = one.kind.fails or other.kind.fails
    return Value(f"CAST({sides[0]} {sign} {sides[1]} AS {duckdb_type_of(made)})", replace(made, fails=fails))


def _division(sign: str, one: Value, other: Value, families: set[str]) -> Value | None:
    """Divisions fail for 0, in Spark as here. A literal that is not 0 cannot fail."""
    safe = isinstance(other.literal, int) and other.literal > 0
    divisor = other.text if safe else f"__not_zero({other.text})"
    fails = one.kind.fails or other.kind.fails or not safe
    if sign == "/" and families <= {WHOLE, DOUBLE}:
        return Value(f"(CAST({one.text} AS DOUBLE) / {divisor})", replace(_DOUBLE, fails=fails))
    if families != {WHOLE}:
        return None
    width = max(one.kind.width, other.kind.width)
    if sign == "%":
        kind = DUCKDB_WHOLE[width]
        return Value(f"(CAST({one.text} AS {kind}) % CAST({divisor} AS {kind}))", Kind(WHOLE, width, width, fails))
    return Value(f"(CAST({one.text} AS BIGINT) // {divisor})", Kind(WHOLE, 63, one.kind.bits, fails))


def negated(value: Value) -> Value | None:
    kind = value.kind
    if kind.family == WHOLE:  # the least number of a type has no negative
        literal = -value.literal if isinstance(value.literal, int) else None
        return Value(f"(- {value.text})", replace(kind, fails=kind.fails or kind.bits == kind.width), False, literal)
    return Value(f"(- {value.text})", kind) if kind.family in (DOUBLE, DECIMAL) else None


def moved(sign: str, time: Value, interval: Value) -> Value | None:
    """A time and an interval of days or smaller units."""
    if time.kind.family == TIMESTAMP and interval.kind.family == "interval" and sign in "+-":
        return Value(f"({time.text} {sign} {interval.text})", time.kind)
    return None


def bitwise(sign: str, one: Value, other: Value) -> Value | None:
    if one.kind.family != WHOLE or other.kind.family != WHOLE:
        return None
    kind = replace(common((one.kind, other.kind)), bits=max(one.kind.width, other.kind.width))
    text = f"xor({one.text}, {other.text})" if sign == "^" else f"({one.text} {sign} {other.text})"
    return Value(text, kind)


def like(value: Value, pattern: Value) -> Value | None:
    """LIKE with a pattern without the backslash, which is an escape only in Spark."""
    if value.kind.family != STRING or not isinstance(pattern.literal, str) or "\\" in pattern.literal:
        return None
    return Value(f"({value.text} LIKE {pattern.text})", _BOOLEAN)


def cast(value: Value, to: Kind, written: str) -> Value | None:
    """A cast that gives the same value in both engines, or fails in both; `written` is the type in DuckDB."""
    kind, target = value.kind, to.family
    text = f"CAST({value.text} AS {written})"
    if kind.family == "null" or (kind.family == target and kind.family not in (WHOLE, DECIMAL)):
        return Value(text if kind.family == "null" else value.text, replace(to, fails=kind.fails), value.bound)
    if kind.family == WHOLE and target == WHOLE:
        bits = min(kind.bits, to.width)
        return Value(text, Kind(WHOLE, to.width, bits, kind.fails or kind.bits > to.width), value.bound)
    if kind.family == WHOLE and target in (DOUBLE, STRING):
        return Value(text, replace(to, fails=kind.fails))
    if kind.family == DECIMAL and target == DECIMAL and kind.bits == to.bits:
        return Value(text, replace(to, fails=kind.fails or kind.width > to.width))
    if kind.family == WHOLE and target == DECIMAL:
        return Value(text, replace(to, fails=kind.fails or kind.bits // 3 + 1 > to.width - to.bits))
    if kind.family == BOOLEAN and target == STRING:
        return Value(text, to)
    if kind.family == DATE and target == TIMESTAMP:
        return Value(f"make_timestamptz(epoch_us(CAST({value.text} AS TIMESTAMP)))", to)
    if kind.family == TIMESTAMP and target == DATE:
        return Value(f"CAST(make_timestamp(epoch_us({value.text})) AS DATE)", to)
    return None


# ---- aggregates and window functions

#: Digits that Spark can add to a sum of decimals; wider ones can overflow in one engine and not in the other.
_SUMMED = 28
#: Bits of whole numbers that are the same as DOUBLE.
_EXACT = 53


def _sum(value: Value, distinct: bool, over: bool) -> Value | None:
    kind, inside = value.kind, f"DISTINCT {value.text}" if distinct else value.text
    summed = f"sum({inside})"
    if kind.family == WHOLE:
        made = Kind(WHOLE, 63, min(63, kind.bits + ROWS), kind.fails)
        # A sum over a frame is not checked for overflow.
        return Value(summed, replace(made, fails=made.bits == 63)) if over else Value(f"__total({summed})", made)
    if kind.family == DECIMAL and kind.width <= _SUMMED:
        return Value(summed, Kind(DECIMAL, min(MOST_DIGITS, kind.width + 10), kind.bits))
    # The order of distinct values depends on the engine, and a sum of doubles on the order.
    return Value(summed, _DOUBLE) if kind.family in (DOUBLE, FLOAT) and not distinct else None


def _avg(value: Value, distinct: bool, over: bool) -> Value | None:
    if value.kind.family not in (WHOLE, DOUBLE, FLOAT):
        return None
    if distinct:
        return (
            None
            if value.kind.family != WHOLE or value.kind.bits > _EXACT
            else Value(f"avg(DISTINCT {value.text})", _DOUBLE)
        )
    return Value(f"avg(CAST({value.text} AS DOUBLE))", _DOUBLE)


def _least(name: str) -> Callable[[Value, bool, bool], Value | None]:
    def made(value: Value, distinct: bool, over: bool) -> Value | None:
        return None if value.kind == UNKNOWN else Value(f"{name}({value.text})", value.kind)

    return made


def _moment(name: str) -> Callable[[Value, bool, bool], Value | None]:
    """A statistic of doubles, which may differ in the last digits, as sums of them do."""

    def made(value: Value, distinct: bool, over: bool) -> Value | None:
        if distinct or value.kind.family not in (WHOLE, DOUBLE):
            return None
        return Value(f"{name}(CAST({value.text} AS DOUBLE))", _DOUBLE)

    return made


def _logical(name: str) -> Callable[[Value, bool, bool], Value | None]:
    def made(value: Value, distinct: bool, over: bool) -> Value | None:
        return Value(f"{name}({value.text})", _BOOLEAN) if value.kind.family == BOOLEAN else None

    return made


def _bits(name: str) -> Callable[[Value, bool, bool], Value | None]:
    def made(value: Value, distinct: bool, over: bool) -> Value | None:
        if value.kind.family != WHOLE or distinct:
            return None
        return Value(f"{name}({value.text})", replace(value.kind, bits=value.kind.width))

    return made


def _count_if(value: Value, distinct: bool, over: bool) -> Value | None:
    if value.kind.family != BOOLEAN or distinct:
        return None
    return Value(f"count(CASE WHEN {value.text} THEN 1 END)", COUNT)


#: Aggregates of one argument: from the value, whether it is DISTINCT, and whether it is over a frame.
AGGREGATES: dict[str, Callable[[Value, bool, bool], Value | None]] = {
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    "min": _least("min"),
    "max": _least("max"),
    "count_if": _count_if,
    **dict.fromkeys(("bool_and", "every"), _logical("bool_and")),
    **dict.fromkeys(("bool_or", "some", "any"), _logical("bool_or")),
    "bit_and": _bits("bit_and"),
    "bit_or": _bits("bit_or"),
    "bit_xor": _bits("bit_xor"),
    **dict.fromkeys(("stddev", "stddev_samp", "std"), _moment("stddev_samp")),
    "stddev_pop": _moment("stddev_pop"),
    **dict.fromkeys(("variance", "var_samp"), _moment("var_samp")),
    "var_pop": _moment("var_pop"),
}
#: Functions of the position of a row in its window, and their kinds.
RANKS: dict[str, Kind] = {
    **dict.fromkeys(("row_number", "rank", "dense_rank"), whole("int", ROWS)),
    "percent_rank": _DOUBLE,
    "cume_dist": _DOUBLE,
}
