"""approx_count_distinct, as Spark estimates it: from how rare the rarest hash of each of 512 kinds is (HyperLogLog++).

A partial is a set of cells: the 9 bits of a kind, and in two digits the number of zeros after them, plus one. Merging
keeps the rarest of each kind, and the estimate depends on nothing else; so the answer equals Spark's in any order. Only
the default precision has a table of corrections here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from anabranch.algebra.parts import INTEGERS, Aggregate, Part, let

_KINDS = 512
#: The mean estimates of HyperLogLog for 1, 13, 26, 39, 52, 64, ... to 2560 values. The table is that of the paper's
#: authors, for 512 kinds.
_ESTIMATES = """
    369 374.8294 381.2452 387.6698 394.1464 400.2024 406.8782 413.6598 420.462 427.2826 433.7102 440.7416 447.9366
    455.1046 462.285 469.0668 476.306 483.8448 491.301 498.9886 506.2422 513.8138 521.7074 529.7428 537.8402 545.1664
    553.3534 561.594 569.6886 577.7876 585.65 594.228 602.8036 611.1666 620.0818 628.0824 637.2574 646.302 655.1644
    664.0056 672.3802 681.7192 690.5234 700.2084 708.831 718.485 728.1112 737.4764 746.76 756.3368 766.5538 775.5058
    785.2646 795.5902 804.3818 814.8998 824.9532 835.2062 845.2798 854.4728 864.9582 875.3292 886.171 896.781 906.5716
    916.7048 927.5322 937.875 949.3972 958.3464 969.7274 980.2834 992.1444 1003.4264 1013.0166 1024.018 1035.0438
    1046.34 1057.6856 1068.9836 1079.0312 1091.677 1102.3188 1113.4846 1124.4424 1135.739 1147.1488 1158.9202 1169.406
    1181.5342 1193.2834 1203.8954 1216.3286 1226.2146 1239.6684 1251.9946 1262.123 1275.4338 1285.7378 1296.076
    1308.9692 1320.4964 1333.0998 1343.9864 1357.7754 1368.3208 1380.4838 1392.7388 1406.0758 1416.9098 1428.9728
    1440.9228 1453.9292 1462.617 1476.05 1490.2996 1500.6128 1513.7392 1524.5174 1536.6322 1548.2584 1562.3766
    1572.423 1587.1232 1596.5164 1610.5938 1622.5972 1633.1222 1647.7674 1658.5044 1671.57 1683.7044 1695.4142
    1708.7102 1720.6094 1732.6522 1747.841 1756.4072 1769.9786 1782.3276 1797.5216 1808.3186 1819.0694 1834.354
    1844.575 1856.2808 1871.1288 1880.7852 1893.9622 1906.3418 1920.6548 1932.9302 1945.8584 1955.473 1968.8248
    1980.6446 1995.9598 2008.349 2019.8556 2033.0334 2044.0206 2059.3956 2069.9174 2082.6084 2093.7036 2106.6108
    2118.9124 2132.301 2144.7628 2159.8422 2171.0212 2183.101 2193.5112 2208.052 2221.3194 2233.3282 2247.295
    2257.7222 2273.342 2286.5638 2299.6786 2310.8114 2322.3312 2335.516 2349.874 2363.5968 2373.865 2387.1918
    2401.8328 2414.8496 2424.544 2436.7592 2447.1682 2464.1958 2474.3438 2489.0006 2497.4526 2513.6586 2527.19
    2540.7028 2553.768
"""
#: The estimate is corrected by the mean error of the six entries around it.
_AROUND = 6
#: With this many empty kinds, linear counting is used; with any, only if the estimate is small.
_FEW, _SMALL = 235, 5 * _KINDS // 2
#: Estimates from here on need no correction.
_MANY = 5 * _KINDS
_SCALE = 0.7213 / (1.0 + 1.079 / _KINDS) * _KINDS * _KINDS


def find(name: str, types: Sequence[str]) -> Aggregate | None:
    if name != "approx_count_distinct" or len(types) != 1 or not _hashed(types[0]):
        return None
    bits = "lpad(bin(xxhash64({x0})), 64, '0')"
    zeros = f"instr(concat(substring({bits}, 10), '1'), '1')"
    cell = f"concat(left({bits}, 9), lpad(CAST({zeros} AS STRING), 2, '0'))"
    part = Part(
        "cells",
        f"collect_set(CASE WHEN ({{x0}}) IS NOT NULL THEN {cell} END){{filter}}",
        let("array_sort(flatten(collect_list({c})))", "s", f"filter(s, (v, i) -> {_RAREST})"),
        "coalesce(__rarest(list_sort(flatten(array_agg({c}) FILTER (WHERE {c} IS NOT NULL)))), [])",
    )
    final = _estimate("coalesce({cells}, array())")
    shared = types[0] in (*INTEGERS, "string", "date", "timestamp", "boolean")
    return Aggregate(name, (part,), final, duckdb=shared, exact=True, duckdb_final="__estimate({cells})", raised=False)


def _hashed(kind: str) -> bool:
    """Whether xxhash64 distinguishes the same values as approx_count_distinct: not nested values or collated texts."""
    return not any(each in kind for each in ("<", "collate", "variant", "void", "interval"))


#: The last of each kind in sorted cells.
_RAREST = "i = size(s) - 1 OR left(get(s, i + 1), 9) <> left(v, 9)"


def _corrections() -> tuple[list[float], list[float]]:
    """The sum of six errors to subtract, from each estimate on; the first one also below."""
    listed = [float(each) for each in _ESTIMATES.split()]
    errors = [each - (1 + at * (_MANY - 1) // (len(listed) - 1)) for at, each in enumerate(listed)]
    sums = [math.fsum(errors[at : at + _AROUND]) for at in range(len(listed) - _AROUND + 1)]
    since = [(listed[at] + listed[at + _AROUND]) / 2 for at in range(len(listed) - _AROUND)]
    # Above the table there are five entries around an estimate.
    last = math.fsum(errors[-_AROUND + 1 :]) * _AROUND / (_AROUND - 1)
    return [round(each, 6) for each in (*since, listed[-1])], [round(each, 6) for each in (*sums, last)]


def _estimate(cells: str) -> str:
    since, sums = (", ".join(f"{each}D" for each in column) for column in _corrections())
    wrong = f"array({sums})[size(filter(array({since}), t -> t < e))] / {_AROUND}"
    raw = (
        f"{_SCALE}D / aggregate(s, CAST({_KINDS} - size(s) AS DOUBLE),"
        " (a, c) -> a + 1.0D / shiftleft(1L, CAST(right(c, 2) AS INT)))"
    )
    counted = f"{_KINDS} * ln({_KINDS}.0D / ({_KINDS} - size(s)))"
    either = _either("size(s)", counted, wrong)
    return let(cells, "s", f"CAST(floor({let(raw, 'e', either)} + 0.5D) AS BIGINT)")


def _either(taken: str, counted: str, wrong: str) -> str:
    """The result for an estimate e with this many kinds taken."""
    few = f"{taken} <= {_KINDS - _FEW} OR ({taken} < {_KINDS} AND e <= {_SMALL})"
    return f"CASE WHEN {few} THEN {counted} WHEN e < {_MANY} THEN e - {wrong} ELSE e END"


def macros() -> dict[str, str]:
    """The same for DuckDB."""
    since, sums = (f"CAST([{', '.join(map(str, column))}] AS DOUBLE[])" for column in _corrections())
    wrong = f"({sums})[len(list_filter({since}, lambda t: t < e)) + 1] / {_AROUND}"
    shares = (
        "list_sum(list_transform(s, lambda c: 1 / CAST(CAST(1 AS BIGINT) << CAST(right(c, 2) AS INTEGER) AS DOUBLE)))"
    )
    raw = f"CAST({_SCALE!r} AS DOUBLE) / ({_KINDS} - len(s) + {shares})"
    counted = f"{_KINDS} * ln(CAST({_KINDS} AS DOUBLE) / ({_KINDS} - len(s)))"
    either = f"list_transform([{raw}], lambda e: {_either('len(s)', counted, wrong)})[1]"
    estimate = f"CAST(floor({either} + 0.5) AS BIGINT)"
    return {
        # Each cell with the next one: a lambda that reads the whole list would copy it for each cell.
        "__rarest(s)": "list_transform(list_filter(list_zip(s, s[2:]),"
        " lambda t: t[2] IS NULL OR left(t[1], 9) <> left(t[2], 9)), lambda t: t[1])",
        "__estimate(cells)": f"list_transform([coalesce(cells, [])], lambda s: {estimate})[1]",
    }
