"""Random rows of the stream `s`, as awkward as a stream can hold them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

Row = tuple[Any, ...]

EPOCH = datetime(1970, 1, 1)
TEXTS = [
    None,
    "a",
    "a",
    "b",
    "b",
    "c",
    "",
    " ",
    "It's",
    "back\\slash",
    "a\nb",
    'say "so"',
    "`",
    "ä🜚",
    "NULL",
    "--",
    "%{0}",
]
WHOLE = [None, 0, 1, 2, 2, 7, -5, 2_000_000_000, -2_000_000_000]
EXACT = [None, *map(Decimal, ("0.00", "1.10", "0.01", "-3.33", "9999999999.99", "-0.10"))]
DOUBLES = [None, 0.0, 0.1, 0.2, -2.5, 1e10, 1e-9, 3.3]
#: On and beside the bounds of windows, before the epoch, far too late, and once far too early.
MICROSECONDS = [0, 0, 1, 500_000, 999_999]

times = st.one_of(
    st.builds(
        lambda seconds, micros: EPOCH + timedelta(seconds=seconds, microseconds=micros),
        st.integers(-40, 80),
        st.sampled_from(MICROSECONDS),
    ),
    st.sampled_from([EPOCH + timedelta(seconds=5 * number) for number in range(-6, 12)]),
    st.sampled_from(
        [datetime(1907, 3, 4, 5, 6, 7, 8), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2100, 2, 3)]
    ),
)

rows = st.lists(
    st.tuples(
        st.sampled_from(TEXTS),
        st.sampled_from([None, 0, 1, 1, 2]),
        st.sampled_from(WHOLE),
        st.sampled_from(EXACT),
        st.sampled_from(DOUBLES),
        st.sampled_from([None, True, False]),
        times,
    ),
    min_size=3,
    max_size=40,
)
