"""Looks up the rows of keys in an external table: in batches, in parallel, and with retries.

Knows nothing of views and Spark: keys in, matches out.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, cast

from anabranch.engine.place import Limits
from anabranch.errors import SourceError
from anabranch.sources.lookup import Asking, Comparison, LookupSource, SearchableSource, Unreachable

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[Any, ...]
#: The wait before the second try, and the longest wait, in seconds; each wait is twice the one before.
FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class LookupRequest:
    """The `columns` of the rows whose columns `by` equal the values of a key, or compare with them by `signs`."""

    columns: tuple[str, ...]
    by: tuple[str, ...]
    signs: tuple[str, ...] = ()

    @property
    def fetched(self) -> tuple[str, ...]:
        """The columns that an answer needs to be split by key."""
        return tuple(dict.fromkeys((*self.columns, *self.by)))


#: Rows, and the position of the key of each; without positions, the rows contain their keys.
Answer = tuple["pa.Table", Sequence[int] | None]


@dataclass
class LookupCounts:
    """Statistics of the lookups in a table since the home was opened."""

    requests: int = 0
    keys: int = 0
    rows: int = 0
    retries: int = 0
    remembered: int = 0  # keys that the cache answered


class LookupClient:
    """The client of one table. `sleep` waits so many seconds and returns whether to stop; `now` is in microseconds."""

    def __init__(
        self,
        name: str,
        source: LookupSource,
        asking: Asking,
        now: Callable[[], int],
        sleep: Callable[[float], bool],
        most: Callable[[], int] = lambda: Limits.lookup_keys,
    ) -> None:
        self.name = name
        self.source = source
        self.asking = asking
        self.tally = LookupCounts()
        self._lock = Lock()
        self._now = now
        self._sleep = sleep
        self._most = most
        self._known: OrderedDict[tuple[LookupRequest, Key], tuple[int, pa.Table]] = OrderedDict()

    def matches(self, question: LookupRequest, keys: Iterable[Key]) -> dict[Key, pa.Table]:
        """The rows of each key that has any."""
        wanted = dict.fromkeys(key for key in keys if not any(value is None for value in key))
        found: dict[Key, pa.Table] = {}
        unknown: list[Key] = []
        for key in wanted:
            known = self._remembered(question, key)
            if known is None:
                unknown.append(key)
            else:
                found[key] = known
        for batch, rows, counts in self._answers(question, unknown):
            by_key = split_by_key(batch, rows, counts)
            found |= by_key
            self._remember(question, by_key)
        return {key: rows for key, rows in found.items() if rows.num_rows}

    def lists(self, question: LookupRequest, keys: Iterable[Key], columns: pa.Schema) -> tuple[list[Key], pa.ListArray]:
        """The keys that have rows, and the list of rows of each."""
        import pyarrow as pa

        given: list[Key] = []
        tables: list[pa.Table] = [columns.empty_table()]
        sizes: list[int] = []
        if self.asking.cache is not None:
            matches = self.matches(question, keys)
            given, tables = list(matches), [*tables, *matches.values()]
            sizes = [each.num_rows for each in matches.values()]
        else:  # a table for each of many keys would dominate the cost
            wanted = dict.fromkeys(key for key in keys if not any(value is None for value in key))
            for batch, rows, counts in self._answers(question, list(wanted)):
                given += [key for key, count in zip(batch, counts, strict=True) if count]
                sizes += [count for count in counts if count]
                tables.append(rows)
        whole = pa.concat_tables([each if each.schema.equals(columns) else each.cast(columns) for each in tables])
        structs = whole.combine_chunks().to_struct_array().combine_chunks().cast(pa.struct(list(columns)))
        return given, pa.ListArray.from_arrays(pa.array([0, *accumulate(sizes)], pa.int32()), structs)

    def _answers(
        self, question: LookupRequest, keys: Sequence[Key]
    ) -> Iterator[tuple[Sequence[Key], pa.Table, list[int]]]:
        """Batches of keys, their rows in the order of the keys, and the number of rows of each key."""
        size = self.asking.batch
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        in_vain = Event()
        with ThreadPoolExecutor(self.asking.requests, "anabranch-ask") as pool:
            answers = [pool.submit(self._request, question, batch, in_vain) for batch in batches]
            try:
                for batch, answer in zip(batches, answers, strict=True):
                    yield batch, *in_order(question, batch, *answer.result())
            except BaseException:
                in_vain.set()
                for answer in answers:
                    answer.cancel()
                raise

    def _request(self, question: LookupRequest, keys: Sequence[Key], in_vain: Event) -> Answer:
        """One batch, retried until its deadline, or until another batch has failed for good."""
        tries = 0
        while True:
            self._count(requests=1)
            try:
                answer = self._answer(question, keys)
            except Unreachable as error:
                last = tries >= self.asking.retries or in_vain.is_set()
                if last or self._sleep(min(LONGEST_WAIT, FIRST_WAIT * 2.0**tries)):
                    raise SourceError(
                        f"table {self.name} did not answer after {tries + 1} attempt{'s' if tries else ''}:"
                        f" {error.message}",
                        hint="nothing of this run was committed; the next run tries again",
                    ) from error
                tries += 1
                self._count(retries=1)
            else:
                self._count(keys=len(keys), rows=answer[0].num_rows)
                return answer

    def _answer(self, question: LookupRequest, keys: Sequence[Key]) -> Answer:
        if not question.signs:
            return self.source.fetch(question.fetched, question.by, keys), None
        comparisons = tuple(map(Comparison, question.by, question.signs))
        return cast(SearchableSource, self.source).search(question.fetched, comparisons, keys)

    def _count(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                setattr(self.tally, name, getattr(self.tally, name) + count)

    # ---- memory

    def _remembered(self, question: LookupRequest, key: Key) -> pa.Table | None:
        known = self._known.get((question, key))
        if known is None or self.asking.cache is None or known[0] <= self._now():
            return None
        self._count(remembered=1)
        return known[1]

    def _remember(self, question: LookupRequest, found: dict[Key, pa.Table]) -> None:
        if self.asking.cache is None:
            return
        until = self._now() + self.asking.cache
        for key, rows in found.items():
            self._known.pop((question, key), None)
            self._known[(question, key)] = until, rows
        most = self._most()
        while len(self._known) > most:  # the oldest first
            self._known.popitem(last=False)


def in_order(
    question: LookupRequest, keys: Sequence[Key], rows: pa.Table, places: Sequence[int] | None = None
) -> tuple[pa.Table, list[int]]:
    """Rows in the order of their keys, independent of the order of arrival, and the number of rows of each key.

    Rows of other keys, and rows that do not match their key after all, are dropped.
    """
    import pyarrow as pa

    values = [rows.column(name).to_pylist() for name in question.by]
    if places is None:
        numbers = {key: place for place, key in enumerate(keys)}
        places = [numbers.get(key, -1) for key in zip(*values, strict=True)]
    else:
        tests = list(zip(map(_COMPARE.get, question.signs), values, strict=True))
        places = [
            place if all(fits(test, column[row], keys[place][i]) for i, (test, column) in enumerate(tests)) else -1
            for row, place in enumerate(places)
        ]
    order = [("__place", "ascending"), *((name, "ascending") for name in question.fetched)]
    placed = rows.append_column("__place", pa.array(places, pa.int64())).sort_by(order)
    counts = Counter(places)
    return placed.select(list(question.columns)).slice(counts[-1]), [counts[place] for place in range(len(keys))]


def split_by_key(keys: Sequence[Key], rows: pa.Table, counts: Sequence[int]) -> dict[Key, pa.Table]:
    """Rows by key, without keys that have no rows."""
    ends = accumulate(counts)
    return {key: rows.slice(end - count, count) for key, count, end in zip(keys, counts, ends, strict=True)}


def fits(test: Callable[[Any, Any], Any] | None, stored: Any, value: Any) -> bool:
    """Whether a value of a row may match that of a key; NaN compares as in the external table."""
    if stored is None:
        return False
    return test is None or stored != stored or value != value or bool(test(stored, value))
