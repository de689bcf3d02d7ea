"""Asking a table outside for the rows of keys: in batches, several at once, again if it does not answer.

Knows nothing of views and Spark: keys in, matches out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.lookup import Asking, LookupSource, Unreachable

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[Any, ...]
#: How long to wait before the second try, and at the most before any, in seconds; each wait is twice the one before.
FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0
#: So many keys are remembered at the most; those that were asked for first go first.
MOST_REMEMBERED = 200_000


@dataclass
class Tally:
    """What it took to ask a table, since the home was opened."""

    requests: int = 0
    keys: int = 0
    rows: int = 0
    retries: int = 0
    remembered: int = 0  # keys that were answered from memory


class Asker:
    """Asks one table. `sleep` waits so many seconds, and says whether to give up; `now` is in microseconds."""

    def __init__(
        self,
        name: str,
        source: LookupSource,
        asking: Asking,
        now: Callable[[], int],
        sleep: Callable[[float], bool],
    ) -> None:
        self.name = name
        self.source = source
        self.asking = asking
        self.tally = Tally()
        self._lock = Lock()
        self._now = now
        self._sleep = sleep
        self._known: OrderedDict[tuple[Any, ...], tuple[int, pa.Table]] = OrderedDict()

    def matches(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Iterable[Key]) -> dict[Key, pa.Table]:
        """The `columns` of the rows of each key, for the keys that have any."""
        wanted = dict.fromkeys(key for key in keys if not any(value is None for value in key))
        found: dict[Key, pa.Table] = {}
        unknown: list[Key] = []
        for key in wanted:
            known = self._remembered(columns, by, key)
            if known is None:
                unknown.append(key)
            else:
                found[key] = known
        size = self.asking.batch
        batches = [unknown[start : start + size] for start in range(0, len(unknown), size)]
        asked = tuple(dict.fromkeys((*columns, *by)))
        in_vain = Event()
        with ThreadPoolExecutor(self.asking.requests, "anabranch-ask") as pool:
            answers = [pool.submit(self._ask, asked, by, batch, in_vain) for batch in batches]
            try:
                for batch, answer in zip(batches, answers, strict=True):
                    by_key = apart(answer.result(), columns, by, batch)
                    found |= by_key
                    self._remember(columns, by, by_key)
            except BaseException:
                in_vain.set()
                for answer in answers:
                    answer.cancel()
                raise
        return {key: rows for key, rows in found.items() if rows.num_rows}

    def _ask(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[Key], in_vain: Event) -> pa.Table:
        """One batch, tried again for as long as it may be; no longer once another one has failed for good."""
        tries = 0
        while True:
            self._count(requests=1)
            try:
                rows = self.source.fetch(columns, by, keys)
            except Unreachable as error:
                last = tries >= self.asking.retries or in_vain.is_set()
                if last or self._sleep(min(LONGEST_WAIT, FIRST_WAIT * 2.0**tries)):
                    raise SourceError(
                        f"table {self.name} did not answer, asked {tries + 1} time{'s' if tries else ''}:"
                        f" {error.message}",
                        hint="nothing of this run is kept; the next one asks again",
                    ) from error
                tries += 1
                self._count(retries=1)
            else:
                self._count(keys=len(keys), rows=rows.num_rows)
                return rows

    def _count(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                setattr(self.tally, name, getattr(self.tally, name) + count)

    # ---- memory

    def _remembered(self, columns: tuple[str, ...], by: tuple[str, ...], key: Key) -> pa.Table | None:
        known = self._known.get((columns, by, key))
        if known is None or self.asking.cache is None or known[0] <= self._now():
            return None
        self._count(remembered=1)
        return known[1]

    def _remember(self, columns: tuple[str, ...], by: tuple[str, ...], found: dict[Key, pa.Table]) -> None:
        if self.asking.cache is None:
            return
        until = self._now() + self.asking.cache
        for key, rows in found.items():
            self._known.pop((columns, by, key), None)
            self._known[(columns, by, key)] = until, rows
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)


def apart(rows: pa.Table, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[Key]) -> dict[Key, pa.Table]:
    """Rows by their key; a key without rows has none, and rows of other keys are left out."""
    import pyarrow as pa

    rows = rows.sort_by([(name, "ascending") for name in (*by, *columns)])  # whatever order they came in
    places: dict[Key, list[int]] = {key: [] for key in keys}
    values = [rows.column(name).to_pylist() for name in by]
    for place, key in enumerate(zip(*values, strict=True)):
        if key in places:
            places[key].append(place)
    shown = rows.select(list(columns))
    order = shown.take(pa.array([place for each in places.values() for place in each], pa.int64()))
    found: dict[Key, pa.Table] = {}
    start = 0
    for key, each in places.items():
        found[key] = order.slice(start, len(each))
        start += len(each)
    return found


def as_table(matches: dict[Key, pa.Table], columns: pa.Schema, keys: pa.Schema, into: str) -> pa.Table:
    """A row for each key with its matches as a list."""
    import pyarrow as pa

    rows = pa.concat_tables([columns.empty_table(), *(each.cast(columns) for each in matches.values())])
    whole = rows.combine_chunks()
    offsets = [0]
    for each in matches.values():
        offsets.append(offsets[-1] + each.num_rows)
    arrays = [pa.array([key[index] for key in matches], field.type) for index, field in enumerate(keys)]
    structs = pa.StructArray.from_arrays(
        [_one_piece(column, column.type) for column in whole.columns], fields=list(columns)
    )
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)
    return pa.Table.from_arrays([*arrays, lists], names=[*keys.names, into])


def _one_piece(column: pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks else pa.array([], type)
