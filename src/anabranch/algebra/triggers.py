"""Triggers: when a key emits its result, decided once per run.

A key has records and a result. A firing emits the result, which is shown until the next firing. The function here
takes the number of new records of a key, the time of the clock and the progress of the stream, and returns whether
the key fires, up to which record, and the state until the next run. It reads no clock and knows neither the records
nor their result: the caller drops a result that has not changed.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The policies under which a late record does not change the emitted result.
UNSEEN = ("drop", "archive")


@dataclass(frozen=True)
class Triggers:
    """The conditions under which a key fires: any of these. With none, nothing is ever emitted.

    counting:  after this many records.
    delay:     this many microseconds after a record.
    first:     whether only the first record since the last firing starts the delay; if not, each record
               restarts it, and a key fires once it has had no records for that long.
    watermark: when progress reaches the event time of the key, and at the end of the stream.
    end:       at the end of the stream.
    """

    counting: int | None = None
    delay: int | None = None
    first: bool = False
    watermark: bool = False
    end: bool = False

    def __post_init__(self) -> None:
        if self.counting is not None and self.counting < 1:
            raise ValueError(f"a trigger counts at least 1 record, not {self.counting}")
        if self.delay is not None and self.delay < 0:
            raise ValueError(f"the delay of a trigger must not be negative, but is {self.delay}")


@dataclass(frozen=True, slots=True)
class Pending:
    """The state of one key between two runs.

    records:    the number since the last firing; 0 if no trigger counts them.
    deadline:   the time of the clock at which the delay ends.
    armed:      whether the key still fires by progress or the end of the stream.
    event_time: the progress at which an armed key fires; None if only the end of the stream fires it.
    """

    records: int = 0
    deadline: int | None = None
    armed: bool = False
    event_time: int | None = None


#: A key without pending triggers.
IDLE = Pending()


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for one key in one run.

    fires: whether it emits its result.
    take:  the number of the run's records of this key in that result, from the first; None for all.
    after: the state until the next run; None if the key can be forgotten.
    """

    fires: bool
    take: int | None
    after: Pending | None


def decide(
    triggers: Triggers,
    pending: Pending | None,
    records: int,
    event_time: int | None,
    *,
    now: int,
    before: int | None,
    after: int | None,
    ended: bool,
    late: str = "correct",
) -> Decision:
    """The decision for a key with `records` new records in a run, all at the time `now`.

    A key without records takes part while it is pending. `before` and `after` are the progress before and after the
    run; `ended`: the stream has ended. If a key fires several times in one run, only the last firing counts. Records
    of a key whose event time `before` had reached are late: they fire ON WATERMARK at once; with `late` "drop" or
    "archive" they are skipped.

    >>> decide(Triggers(counting=2), None, 5, None, now=0, before=None, after=None, ended=False)
    Decision(fires=True, take=4, after=Pending(records=1, deadline=None, armed=False, event_time=None))
    """
    pending = IDLE if pending is None else pending
    event_time = pending.event_time if event_time is None else event_time
    unseen = late in UNSEEN and _reached(event_time, before)
    seen = 0 if unseen else records

    # The number of records in the last firing; None before the first one.
    shown: int | None = None
    count, deadline = pending.records, pending.deadline
    if deadline is not None and _over_before_records(triggers, deadline, now):
        shown, count, deadline = 0, 0, None
    if triggers.counting is not None:
        count += seen
        if count >= triggers.counting:
            count %= triggers.counting
            shown, deadline = seen - count, None
    if triggers.delay is not None and seen > (shown or 0) and not (triggers.first and deadline is not None):
        deadline = now + triggers.delay

    armed = pending.armed or (seen > 0 and (triggers.watermark or triggers.end))
    final = armed and (ended or (triggers.watermark and _reached(event_time, after)))
    if final or (deadline is not None and deadline <= now):
        shown, count, deadline = seen, 0, None
    # Other firings do not disarm ON WATERMARK; the end of the stream adds nothing once all is emitted.
    if final or (shown == seen and not triggers.watermark):
        armed = False

    left = Pending(count, deadline, armed, event_time if armed and triggers.watermark else None)
    take = None if shown == records else shown
    return Decision(shown is not None, take, None if left == IDLE else left)


def _over_before_records(triggers: Triggers, deadline: int, now: int) -> bool:
    """Whether a delay has ended before the records of the run.

    It would have fired between the runs. Where only the first record starts it, the records of its last instant
    still belong to it; where each record restarts it, the key had no records for the whole delay.
    """
    return deadline < now or (deadline == now and not triggers.first)


def _reached(event_time: int | None, progress: int | None) -> bool:
    """Whether progress has reached the event time of a key: its window has closed."""
    return event_time is not None and progress is not None and event_time <= progress


def decide_sql(triggers: Triggers, rows: str, *, now: int, ended: bool, late: str) -> str:
    """`decide` for many keys at once, as Spark SQL.

    `rows` is a relation with a row a key: `n` new records, the pending state (`records`, `deadline`, `armed`,
    `event_time`), the time `ends` of the key, and the progress `lower` before and `upper` after the run. The result has
    these columns and those of `decide`: `fires`, `take`, and `left_records` and so on for the new state.
    """
    wait, first, by_progress = triggers.delay, triggers.first, triggers.watermark
    unseen = "coalesce(time <= lower, false)" if late in UNSEEN else "false"
    over = f"coalesce(deadline < {now}{'' if first else f' OR deadline = {now}'}, false)"
    counted, every = "count1 + seen", triggers.counting
    hit = f"({counted}) >= {every}" if every is not None else "false"
    count2 = f"IF({hit}, ({counted}) % {every}, {counted})" if every is not None else "count1"
    starts = "false" if wait is None else "seen > coalesce(shown2, 0)" + (" AND deadline2 IS NULL" if first else "")
    arms = "seen > 0" if by_progress or triggers.end else "false"
    reached = "coalesce(time <= upper, false)" if by_progress else "false"
    steps = [
        "coalesce(ends, event_time) AS time",
        f"IF({unseen}, 0L, n) AS seen, {over} AS over",
        "IF(over, 0L, NULL) AS shown1, IF(over, 0L, records) AS count1, IF(over, NULL, deadline) AS deadline1",
        f"{hit} AS hit, {count2} AS count2",
        "IF(hit, seen - count2, shown1) AS shown2, IF(hit, NULL, deadline1) AS deadline2",
        f"IF({starts}, {now + (wait or 0)}, deadline2) AS deadline3, armed OR {arms} AS armed1",
        f"armed1 AND ({'true' if ended else reached}) AS final",
        f"final OR coalesce(deadline3 <= {now}, false) AS last",
        "IF(last, seen, shown2) AS shown3",
    ]
    for step in steps:
        rows = f"(SELECT *, {step} FROM {rows})"
    quiet = "final" if by_progress else "(final OR coalesce(shown3 = seen, false))"
    left = f"(SELECT *, armed1 AND NOT {quiet} AS left_armed FROM {rows})"
    given = "n, records, deadline, armed, event_time, ends, lower, upper"
    event = "IF(left_armed, time, NULL)" if by_progress else "CAST(NULL AS BIGINT)"
    return (
        f"SELECT * EXCEPT ({given}, time, seen, over, shown1, count1, deadline1, hit, count2, shown2, deadline2,"
        f" deadline3, armed1, final, last, shown3), {given}, shown3 IS NOT NULL AS fires, nullif(shown3, n) AS take,"
        f" CAST(IF(last, 0, count2) AS BIGINT) AS left_records, IF(last, NULL, deadline3) AS left_deadline,"
        f" {event} AS left_event_time FROM {left}"
    )
