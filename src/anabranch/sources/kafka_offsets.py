"""Offsets of Kafka: ranges of them shared, joined and cut, and where a stream starts. Asks no broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone

from anabranch.sources.kafka_client import Range
from anabranch.sources.registry import WrongOption


def share(ranges: Sequence[Range], most: int) -> list[Range]:
    """As much of each range as is fair, so that together they have at the most so many offsets.

    >>> share([Range("t", 0, 0, 100), Range("t", 1, 5, 7), Range("t", 2, 0, 50)], 12)
    [Range(topic='t', partition=0, start=0, end=5), Range(topic='t', partition=1, start=5, end=7), \
Range(topic='t', partition=2, start=0, end=5)]
    """
    ends = [each.end for each in ranges]
    by_length = sorted(range(len(ranges)), key=lambda place: ranges[place].end - ranges[place].start)
    for done, place in enumerate(by_length):
        each = ranges[place]
        # Rounded up: else all of many partitions would wait for ever.
        part = min(each.end - each.start, -(-most // (len(ranges) - done)))
        ends[place] = each.start + part
        most -= part
    return [each._replace(end=end) for each, end in zip(ranges, ends, strict=True)]


def joined(ranges: Sequence[Range]) -> list[Range]:
    """Ranges with those that follow on each other made one; partition by partition, in the order of offsets.

    >>> joined([Range("t", 0, 0, 5), Range("t", 1, 0, 2), Range("t", 0, 5, 9)])
    [Range(topic='t', partition=0, start=0, end=9), Range(topic='t', partition=1, start=0, end=2)]
    """
    found: list[Range] = []
    for each in sorted(ranges, key=lambda each: (each.topic, each.partition, each.start)):
        if found and found[-1][:2] == each[:2] and found[-1].end == each.start:
            found[-1] = found[-1]._replace(end=each.end)
        else:
            found.append(each)
    return found


def sliced(whole: Range, most: int) -> list[Range]:
    """A range in parts of at the most so many offsets."""
    starts = range(whole.start, whole.end, most)
    return [whole._replace(start=start, end=min(start + most, whole.end)) for start in starts]


def offsets_of(start: str, topic: str | None) -> dict[tuple[str, int], int] | None:
    """Offsets as they are given; None if it is something else that says where to start.

    >>> offsets_of('{"0": 5, "1": 7}', "t")
    {('t', 0): 5, ('t', 1): 7}
    """
    if not start.lstrip().startswith("{"):
        return None
    try:
        given = json.loads(start)
        by_topic = {topic: given} if topic is not None and topic not in given else given
        return {(str(name), int(n)): int(at) for name, each in by_topic.items() for n, at in each.items()}
    except (ValueError, TypeError, AttributeError):
        hint = """offsets by partition: '{"0": 5, "1": 7}'; with a pattern by topic: '{"t": {"0": 5}}'"""
        raise WrongOption("start", f"these are not offsets: {start}", hint=hint) from None


def milliseconds_of(start: str) -> int:
    """A time as it is given, in UTC where it names no zone."""
    try:
        time = datetime.fromisoformat(start.replace("Z", "+00:00"))
    except ValueError:
        hint = "it is 'earliest', 'latest', a time as in '2026-01-31 08:00:00', or offsets"
        raise WrongOption("start", f"a stream cannot start at {start!r}", hint=hint) from None
    return round((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp() * 1000)
