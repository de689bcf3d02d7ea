"""Triggers: each fires when its rule says so, all of them together, and however records are cut into runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.algebra.progress import END, Delay, Policy, ProgressState, Seen, observe
from anabranch.algebra.triggers import IDLE, Decision, Pending, Triggers, decide

# A record is its key with what it does to the count, 1 or -1, or any other value that the result is made of.
Record = tuple[Any, Any]
Change = tuple[str, Any, Any]


def net(values: Sequence[int]) -> int | None:
    """The count of a key, None where no more records came than went."""
    return total if (total := sum(values)) > 0 else None


@dataclass
class View:
    """A result per key, of which the last fired value is shown. One call is one run."""

    triggers: Triggers
    late: str = "correct"
    value: Callable[[Sequence[Any]], Any] = net
    progress: int | None = None
    history: dict[Any, list[Any]] = field(default_factory=dict)
    pending: dict[Any, Pending] = field(default_factory=dict)
    shown: dict[Any, Any] = field(default_factory=dict)
    # How many records of its key each shown value is made of.
    extent: dict[Any, int] = field(default_factory=dict)

    def run(
        self,
        records: Iterable[Record] = (),
        *,
        now: int = 0,
        progress: int | None = None,
        times: dict[Any, int] | None = None,
        ended: bool = False,
    ) -> list[Change]:
        """What the run changes in what is shown; `times` are the event times of the keys that have one."""
        times = times or {}
        before, self.progress = self.progress, self.progress if progress is None else progress
        brought: dict[Any, list[Any]] = {}
        for key, value in records:
            brought.setdefault(key, []).append(value)
        changes: list[Change] = []
        for key in [*brought, *(key for key in self.pending if key not in brought)]:
            new = brought.get(key, [])
            time = times.get(key) if new else None
            decision = decide(
                self.triggers, self.pending.pop(key, None), len(new), time,
                now=now, before=before, after=self.progress, ended=ended, late=self.late,
            )  # fmt: skip
            if decision.after is not None:
                self.pending[key] = decision.after
            old = self.history.setdefault(key, [])
            extent = len(old) + (len(new) if decision.take is None else decision.take)
            if self.late != "drop" or time is None or before is None or time > before:
                old.extend(new)
            if decision.fires:
                self.extent[key] = extent
                changes += self._show(key, self.value(old[:extent]))
        return changes

    def _show(self, key: Any, value: Any) -> list[Change]:
        previous = self.shown.pop(key, None)
        if value is not None:
            self.shown[key] = value
        if previous == value:
            return []
        return [(sign, key, each) for sign, each in (("-", previous), ("+", value)) if each is not None]


def written(changes: list[Change]) -> str:
    return " ".join(f"{sign}({key},{value})" for sign, key, value in changes)


def records(text: str) -> list[Record]:
    """Records as the tables write them: `a+ b-`, or `a b` where all are added."""
    return [(each[0], -1 if each.endswith("-") else 1) for each in text.split()]


def one_by_one(view: View, text: str, **more: Any) -> dict[int, str]:
    """What each record changes, by its number from 1 on; those that change nothing are left out."""
    changes = {number: written(view.run([each], **more)) for number, each in enumerate(records(text), 1)}
    return {number: each for number, each in changes.items() if each}


# --- COUNTING


def test_counting_fires_at_each_nth_record_of_a_key() -> None:
    view = View(Triggers(counting=2))
    assert one_by_one(view, "a+ b+ a+ a+ b+ a+ a- b+") == {3: "+(a,2)", 5: "+(b,2)", 6: "-(a,2) +(a,4)"}
    assert {key: net(values) for key, values in view.history.items()} == {"a": 3, "b": 3}
    assert view.shown == {"a": 4, "b": 2}


def test_counting_takes_a_key_back_that_has_no_records_left() -> None:
    assert one_by_one(View(Triggers(counting=2)), "a+ a+ a- a-") == {2: "+(a,2)", 4: "-(a,2)"}


def test_counting_shows_nothing_where_nothing_changed() -> None:
    assert one_by_one(View(Triggers(counting=2)), "a+ a+ a+ a-") == {2: "+(a,2)"}


def test_counting_leaves_its_tail_at_the_end_of_the_stream() -> None:
    view = View(Triggers(counting=10))
    assert one_by_one(view, "p " * 15) == {10: "+(p,10)"}
    assert view.run(progress=END, ended=True) == []
    assert view.pending == {"p": Pending(records=5)}


def test_on_watermark_brings_the_tail_of_counting() -> None:
    view = View(Triggers(counting=10, watermark=True))
    assert one_by_one(view, "p " * 15) == {10: "+(p,10)"}
    assert written(view.run(progress=END, ended=True)) == "-(p,10) +(p,15)"
    assert view.pending == {}


RUNS = ["a b a a b", "a a b", "a b"]


@pytest.mark.parametrize(
    ("counting", "expected"),
    [
        (2, ["+(a,2) +(b,2)", "-(a,2) +(a,4)", "-(a,4) +(a,6) -(b,2) +(b,4)"]),
        (3, ["+(a,3)", "+(b,3)", "-(a,3) +(a,6)"]),
    ],
)
def test_a_run_shows_the_value_at_its_last_nth_record(counting: int, expected: list[str]) -> None:
    view = View(Triggers(counting=counting))
    assert [written(view.run(records(each))) for each in RUNS] == expected
    assert view.pending == ({} if counting == 2 else {"b": Pending(records=1)})


def test_several_firings_in_one_run_are_one() -> None:
    assert written(View(Triggers(counting=2)).run(records(" ".join(RUNS)))) == "+(a,6) +(b,4)"


# --- AFTER DELAY


def by_the_clock(
    view: View, arrivals: dict[int, str], until: int, progress: dict[int, int] | None = None, **more: Any
) -> dict[int, str]:
    """What a run at each tick of the clock changes."""
    changes = {
        now: written(view.run(records(arrivals.get(now, "")), now=now, progress=(progress or {}).get(now), **more))
        for now in range(until + 1)
    }
    return {now: each for now, each in changes.items() if each}


def test_each_record_starts_the_delay_anew() -> None:
    view = View(Triggers(delay=10))
    assert by_the_clock(view, {0: "a", 3: "b", 4: "a", 20: "a"}, 40) == {
        13: "+(b,1)",
        14: "+(a,2)",  # 4 + 10, not 0 + 10
        30: "-(a,2) +(a,3)",
    }
    assert view.pending == {}


def test_only_the_first_record_since_the_last_firing_starts_the_delay() -> None:
    view = View(Triggers(delay=10, first=True))
    assert by_the_clock(view, {0: "a", 3: "b", 4: "a", 20: "a"}, 40) == {
        10: "+(a,2)",
        13: "+(b,1)",
        30: "-(a,2) +(a,3)",
    }


@pytest.mark.parametrize("first", [False, True])
def test_a_delay_that_was_over_before_the_run_does_not_show_its_records(first: bool) -> None:
    view = View(Triggers(delay=10, first=first))
    assert view.run(records("a a"), now=0) == []
    assert written(view.run(records("a a a"), now=12)) == "+(a,2)"
    assert view.pending["a"].deadline == 22
    assert written(view.run(now=22)) == "-(a,2) +(a,5)"


@pytest.mark.parametrize(("first", "expected"), [(False, "+(a,1)"), (True, "+(a,2)")])
def test_a_record_of_the_last_instant_is_shown_where_it_does_not_start_the_delay(first: bool, expected: str) -> None:
    view = View(Triggers(delay=10, first=first))
    view.run(records("a"), now=0)
    assert written(view.run(records("a"), now=10)) == expected
    assert view.pending == ({} if first else {"a": Pending(deadline=20)})


@pytest.mark.parametrize("first", [False, True])
def test_no_delay_at_all_fires_in_the_same_run(first: bool) -> None:
    assert written(View(Triggers(delay=0, first=first)).run(records("a a"))) == "+(a,2)"


def test_the_end_of_the_stream_does_not_end_a_delay() -> None:
    view = View(Triggers(delay=10))
    view.run(records("a"), now=0)
    assert view.run(now=1, progress=END, ended=True) == []
    assert written(view.run(now=10, progress=END, ended=True)) == "+(a,1)"


# --- ON WATERMARK and ON END OF STREAM


def windows_of_five(view: View, *arrivals: int) -> dict[int, str]:
    """Counts per window of five, by the time of the record that changed them; progress stays 2 behind."""
    policy, state, changes = Policy(Delay(2)), ProgressState(), {}
    for time in arrivals:
        state = observe(policy, state, {"": Seen(time, time, 1)}, now=0)
        end = time // 5 * 5 + 5
        changes[time] = written(view.run([(end, 1)], progress=state.bound, times={end: end}))
    changes[END] = written(view.run(progress=END, ended=True))
    return {time: each for time, each in changes.items() if each}


def test_on_watermark_without_late_records() -> None:
    # At 9 progress is 10, the end of its window: late. OctoSQL takes such a record and shows it when progress moves
    # on, at 13; here it is passed over, or corrected at once as in the next test.
    assert windows_of_five(View(Triggers(watermark=True), late="drop"), 1, 3, 4, 6, 8, 2, 7, 12, 9, 13) == {
        8: "+(5,3)",
        12: "+(10,3)",
        END: "+(15,2)",
    }


def test_on_watermark_corrects_late_records_at_once() -> None:
    assert windows_of_five(View(Triggers(watermark=True)), 1, 3, 4, 6, 8, 2, 7, 12, 9, 13) == {
        8: "+(5,3)",
        2: "-(5,3) +(5,4)",
        12: "+(10,3)",
        9: "-(10,3) +(10,4)",
        END: "+(15,2)",
    }


def test_a_key_that_is_new_and_late_is_shown_at_once() -> None:
    view = View(Triggers(watermark=True), progress=100)
    assert written(view.run(records("a"), times={"a": 60})) == "+(a,1)"
    assert view.pending == {}


@pytest.mark.parametrize(("late", "expected"), [("correct", "+(a,1)"), ("drop", "")])
def test_a_record_at_the_bound_is_late(late: str, expected: str) -> None:
    for more in ({}, {"progress": 101}, {"ended": True}):
        view = View(Triggers(watermark=True), late=late, progress=100)
        assert written(view.run(records("a"), times={"a": 100}, **more)) == expected
        assert view.pending == {}
        assert view.run(progress=END, ended=True) == []


@pytest.mark.parametrize("late", ["correct", "drop"])
def test_a_record_of_the_run_that_reaches_the_bound_is_not_late(late: str) -> None:
    view = View(Triggers(watermark=True), late=late, progress=99)
    assert written(view.run(records("a"), times={"a": 100}, progress=100)) == "+(a,1)"
    assert view.pending == {}


def test_a_key_without_event_time_waits_for_the_end() -> None:
    view = View(Triggers(watermark=True))
    assert view.run(records("a a"), progress=10**9) == []
    assert written(view.run(progress=END, ended=True)) == "+(a,2)"


def test_on_end_of_stream_waits_for_the_end_whatever_the_progress() -> None:
    view = View(Triggers(end=True))
    assert view.run(records("a a"), times={"a": 5}, progress=10) == []
    assert view.pending == {"a": Pending(armed=True)}
    assert written(view.run(progress=END, ended=True)) == "+(a,2)"
    assert view.pending == {}


def test_a_key_of_which_all_is_shown_does_not_wait_for_the_end() -> None:
    view = View(Triggers(counting=2, end=True))
    view.run(records("a a b b b"))
    assert view.pending == {"b": Pending(records=1, armed=True)}
    assert written(view.run(ended=True)) == "-(b,2) +(b,3)"


@pytest.mark.parametrize("late", ["drop", "archive"])
@pytest.mark.parametrize("progress", [100, 101])
def test_late_records_that_are_passed_over_are_in_no_result(late: str, progress: int) -> None:
    waiting = Pending(records=1, deadline=10)
    same: dict[str, Any] = {"before": progress, "after": progress, "ended": False, "late": late}
    both = Triggers(counting=3, delay=10)
    assert decide(both, waiting, 5, 100, now=9, **same) == Decision(False, None, waiting)
    assert decide(both, waiting, 5, 100, now=10, **same) == Decision(True, 0, None)


# --- several at once


def test_all_triggers_together() -> None:
    view = View(Triggers(counting=3, delay=10, watermark=True))
    arrivals = {0: "a", 1: "a", 2: "a", 3: "a", 14: "a", 15: "a"}
    assert by_the_clock(view, arrivals, 40, {16: 100}, times={"a": 100}) == {
        2: "+(a,3)",  # counting
        13: "-(a,3) +(a,4)",  # the delay, 3 + 10; the one that began at 1 was ended by the firing
        16: "-(a,4) +(a,6)",  # progress; nothing at 25, its firing ended the delay
    }


def test_on_watermark_after_counting_has_shown_all() -> None:
    view = View(Triggers(counting=2, watermark=True))
    assert one_by_one(view, "a a a a", times={"a": 100}) == {2: "+(a,2)", 4: "-(a,2) +(a,4)"}
    assert view.pending == {"a": Pending(armed=True, event_time=100)}
    assert view.run(progress=100) == []
    assert view.pending == {}


@pytest.mark.parametrize(
    ("late", "at", "beyond"),
    [
        # OctoSQL counts late records and shows seven and nine, each at the second. Here one is shown at once ...
        (
            "correct",
            {1: "-(a,5) +(a,6)", 2: "-(a,6) +(a,7)"},
            {1: "-(a,7) +(a,8)", 2: "-(a,8) +(a,9)"},
        ),
        # ... or does nothing at all, to no trigger.
        ("drop", {}, {}),
    ],
)
def test_counting_and_late_records(late: str, at: dict[int, str], beyond: dict[int, str]) -> None:
    view = View(Triggers(counting=2, watermark=True), late=late)
    times = {"a": 100}
    assert one_by_one(view, "a a a a a", times=times) == {2: "+(a,2)", 4: "-(a,2) +(a,4)"}
    assert written(view.run(progress=100)) == "-(a,4) +(a,5)"
    assert one_by_one(view, "a a", times=times) == at
    assert view.run(progress=101) == []
    assert one_by_one(view, "a a", times=times) == beyond


@pytest.mark.parametrize("progress", [100, 101])
def test_counting_alone_counts_late_records(progress: int) -> None:
    view = View(Triggers(counting=2), progress=progress)
    assert one_by_one(view, "a a a a", times={"a": 100}) == {2: "+(a,2)", 4: "-(a,2) +(a,4)"}


# --- the bids of "One SQL to Rule Them All": the highest per ten minutes, shown over time

BIDS = {
    "8:08": ("8:07", 2, "A"),
    "8:12": ("8:11", 3, "B"),
    "8:13": ("8:05", 4, "C"),
    "8:15": ("8:09", 5, "D"),
    "8:17": ("8:13", 1, "E"),
    "8:18": ("8:17", 6, "F"),
}
WATERMARKS = {"8:07": "8:05", "8:14": "8:08", "8:16": "8:12", "8:21": "8:20"}


def minutes(text: str) -> int:
    hours, rest = text.split(":")
    return int(hours) * 60 + int(rest)


@pytest.mark.parametrize(
    ("triggers", "expected"),
    [
        (Triggers(counting=1), ["8:08 +A", "8:12 +B", "8:13 -A +C", "8:15 -C +D", "8:18 -B +F"]),
        (Triggers(watermark=True), ["8:16 +D", "8:21 +F"]),
        # Started at 8:08, 8:12 and 8:15; the bid of 8:18 is in what is shown at 8:18.
        (Triggers(delay=6, first=True), ["8:14 +C", "8:18 +F", "8:21 -C +D"]),
        # With each bid starting the delay anew: last at 8:15 and 8:18.
        (Triggers(delay=6), ["8:21 +D", "8:24 +F"]),
    ],
)
def test_the_bids_of_one_sql(triggers: Triggers, expected: list[str]) -> None:
    view = View(triggers, value=lambda bids: max(bids)[1])
    seen = []
    for now in range(minutes("8:07"), minutes("8:30")):
        time = f"8:{now % 60:02}"
        progress = minutes(WATERMARKS[time]) if time in WATERMARKS else None
        bids, times = [], {}
        if time in BIDS:
            at, price, item = BIDS[time]
            end = minutes(at) // 10 * 10 + 10
            bids, times = [(end, (price, item))], {end: end}
        changes = view.run(bids, now=now, progress=progress, times=times)
        if changes:
            seen.append(" ".join([time, *(sign + item for sign, _, item in changes)]))
    assert seen == expected


# --- laws

KEYED = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 1, -1])), max_size=40)


def cut(sequence: list[Record], sizes: list[int]) -> list[list[Record]]:
    """The sequence in runs of these sizes, what is left over in a last one."""
    rest = iter(sequence)
    return [*(list(islice(rest, size)) for size in sizes), list(rest)]


@given(KEYED, st.integers(1, 5), st.lists(st.integers(0, 9), max_size=12))
def test_counting_shows_the_same_however_records_are_cut_into_runs(
    sequence: list[Record], counting: int, sizes: list[int]
) -> None:
    """After the last run each key shows its value at its last n-th record, whatever the runs were."""
    view = View(Triggers(counting=counting))
    for run in cut(sequence, sizes):
        view.run(run)
    expected = {}
    for key in "abc":
        values = [value for other, value in sequence if other == key]
        value = net(values[: len(values) // counting * counting])
        if value is not None:
            expected[key] = value
    assert view.shown == expected


class Clockwork:
    """The triggers of one key, told of one thing at a time: the meaning that runs are held to."""

    def __init__(self, triggers: Triggers) -> None:
        self.triggers = triggers
        self.seen = self.shown = self.count = 0
        self.deadline: int | None = None
        self.waits = False

    def fire(self) -> None:
        self.shown, self.count, self.deadline = self.seen, 0, None

    def tick(self, now: int) -> None:
        if self.deadline is not None and self.deadline <= now:
            self.fire()

    def record(self, now: int) -> None:
        self.seen += 1
        self.count += 1
        self.waits = True
        if self.triggers.delay is not None and not (self.triggers.first and self.deadline is not None):
            self.deadline = now + self.triggers.delay
        if self.count == self.triggers.counting:
            self.fire()

    def close(self) -> None:
        if self.waits:
            self.fire()
            self.waits = False


@dataclass(frozen=True)
class Step:
    """One run: how long after the last one, its records, how far progress moves."""

    wait: int
    values: list[int]
    move: int


TRIGGERS = st.builds(
    Triggers,
    counting=st.none() | st.integers(1, 4),
    delay=st.none() | st.integers(1, 6),
    first=st.booleans(),
    watermark=st.booleans(),
    end=st.booleans(),
)
STEPS = st.lists(
    st.builds(Step, st.integers(0, 5), st.lists(st.sampled_from([1, 1, -1]), max_size=6), st.integers(0, 2)),
    max_size=12,
)
EVENT_TIME = 5


@given(TRIGGERS, STEPS, st.booleans())
def test_a_run_does_what_its_records_do_one_by_one(triggers: Triggers, steps: list[Step], ends: bool) -> None:
    """After each run a key shows what it would show had it been told of everything one at a time."""
    view, one = View(triggers, progress=0), Clockwork(triggers)
    now = progress = 0
    for number, step in enumerate(steps, 1):
        now, progress = now + step.wait, progress + step.move
        ended = ends and number == len(steps)
        brought = [("a", each) for each in step.values]
        view.run(brought, now=now, progress=progress, times={"a": EVENT_TIME}, ended=ended)
        # With `first`, records of the instant in which the delay ends come before its end.
        one.tick(now - 1 if triggers.first else now)
        for _ in step.values:
            one.record(now)
        one.tick(now)
        reached = progress >= EVENT_TIME
        if (triggers.watermark and (reached or ended)) or (triggers.end and ended):
            one.close()
        assert view.extent.get("a", 0) == one.shown
        assert view.shown.get("a") == net(view.history.get("a", [])[: one.shown])


@given(TRIGGERS, STEPS, st.booleans())
def test_a_firing_starts_the_count_anew(triggers: Triggers, steps: list[Step], ended: bool) -> None:
    """What is counted after a firing are the records it does not show, and every firing shows records that came."""
    pending: Pending | None = None
    now = progress = 0
    for step in steps:
        now, before, progress = now + step.wait, progress, progress + step.move
        came = len(step.values)
        decision = decide(triggers, pending, came, EVENT_TIME, now=now, before=before, after=progress, ended=ended)
        counted = 0 if decision.after is None else decision.after.records
        shown = came if decision.take is None else decision.take
        assert 0 <= shown <= came
        assert decision.fires or decision.take is None
        assert decision.after != IDLE
        if triggers.counting is None:
            assert counted == 0
        else:
            assert counted < triggers.counting
            assert counted == (came - shown if decision.fires else came + (0 if pending is None else pending.records))
        pending = decision.after


@given(TRIGGERS, KEYED, st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 5), min_size=13, max_size=13))
def test_only_counts_that_a_key_had_are_shown(
    triggers: Triggers, sequence: list[Record], sizes: list[int], waits: list[int]
) -> None:
    """However records are cut into runs, a shown count is that of some first records of its key."""
    view, now = View(triggers, progress=0), 0
    had: dict[Any, set[int | None]] = {
        key: {net(values[:size]) for size in range(len(values) + 1)}
        for key in "abc"
        for values in [[value for other, value in sequence if other == key]]
    }
    for run, wait in zip(cut(sequence, sizes), waits, strict=False):
        now += wait
        last = dict(view.extent)
        view.run(run, now=now, progress=now // 3, times={"a": 3, "b": 6})
        assert all(view.shown.get(key) in had[key] for key in "abc")
        assert all(view.extent[key] >= extent for key, extent in last.items())


# --- the rest


def test_a_key_for_which_nothing_came_and_nothing_is_pending_does_nothing() -> None:
    everything = Triggers(2, 10, False, True, True)
    for pending in (None, IDLE):
        decision = decide(everything, pending, 0, None, now=5, before=1, after=END, ended=True)
        assert decision == Decision(False, None, None)


def test_counts_and_delays_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 record, not 0"):
        Triggers(counting=0)
    with pytest.raises(ValueError, match="must not be negative, but is -1"):
        replace(Triggers(), delay=-1)
