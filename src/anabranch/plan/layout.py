"""Positions for the boxes of an acyclic graph: layers from top to bottom, few crossings, no overlaps.

Sugiyama's method: a layer for each box, an order in the layer by the mean of its neighbours, then x by least squares.
An edge that crosses layers gets a slot in each, so that it does not cross boxes; edges from one box share their slots.
Pure arithmetic over sizes: knows nothing of what is in a box or how it is drawn.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

#: Between two boxes of a layer, and the width of a slot for an edge between them.
GAP = 32
SLOT = 4
#: A straight long edge matters more than a centred box.
SLOT_WEIGHT = 4
#: Between two layers; more where an edge goes far to the side.
LAYER_GAP = 40
MOST_LAYER_GAP = 96
#: Between the ends of edges at the top or bottom of a box.
PORT_GAP = 22
ORDER_ROUNDS = 12
PLACE_ROUNDS = 16


@dataclass(frozen=True)
class Size:
    width: int
    height: int


@dataclass(frozen=True)
class Box:
    """A box: its upper left corner and its size."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Edge:
    """A line from layer to layer: straight down from `top` to `start`, then a curve to `end`."""

    start: tuple[int, int]
    end: tuple[int, int]
    top: int
    arrives: bool  # at a box; otherwise the line goes on


@dataclass(frozen=True)
class Layout:
    boxes: Mapping[str, Box]
    edges: tuple[Edge, ...]
    width: int
    height: int


@dataclass(eq=False)
class _Item:
    """A box, or the slot of an edge that crosses a layer."""

    layer: int
    width: int
    height: int
    id: str | None
    above: list[_Item] = field(default_factory=list)
    below: list[_Item] = field(default_factory=list)
    place: int = 0
    x: float = 0.0  # of the middle
    y: int = 0


def lay_out(sizes: Mapping[str, Size], inputs: Mapping[str, Sequence[str]]) -> Layout:
    """Positions for boxes of these sizes, with an edge from each input of a box to the box.

    >>> layout = lay_out({"a": Size(50, 20), "b": Size(80, 20)}, {"b": ["a"]})
    >>> layout.boxes["a"], layout.boxes["b"]
    (Box(x=15, y=0, width=50, height=20), Box(x=0, y=60, width=80, height=20))
    """
    if not sizes:
        return Layout({}, (), 0, 0)
    edges = [(source, target) for target in sizes for source in dict.fromkeys(inputs.get(target, ()))]
    layers = _items(sizes, edges, _layer_numbers(list(sizes), edges))
    _order(layers)
    _place(layers)
    height = _stack(layers)
    left = min(item.x - item.width / 2 for layer in layers for item in layer)
    for layer in layers:
        for item in layer:
            item.x = round(item.x - left - item.width / 2) + item.width / 2
    boxes = {
        item.id: Box(round(item.x - item.width / 2), item.y, item.width, item.height)
        for layer in layers
        for item in layer
        if item.id is not None
    }
    width = max(round(item.x + item.width / 2) for layer in layers for item in layer)
    return Layout({id: boxes[id] for id in sizes}, tuple(_edges(layers)), width, height)


def _layer_numbers(ids: list[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """The layer of each box: below all of its inputs; a box without inputs is right above its first reader."""
    sources: dict[str, list[str]] = {id: [] for id in ids}
    targets: dict[str, list[str]] = {id: [] for id in ids}
    for source, target in edges:
        sources[target].append(source)
        targets[source].append(target)
    waiting = {id: len(sources[id]) for id in ids}
    ready = [id for id in ids if not waiting[id]]
    layer: dict[str, int] = {}
    while ready:
        id = ready.pop()
        layer[id] = max((layer[source] + 1 for source in sources[id]), default=0)
        for target in targets[id]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if len(layer) < len(ids):
        around = ", ".join(id for id in ids if id not in layer)
        raise ValueError(f"a plan goes in one direction, and these nodes go in a circle or come after one: {around}")
    for id in ids:
        if not sources[id] and targets[id]:
            layer[id] = min(layer[target] for target in targets[id]) - 1
    return layer


def _items(sizes: Mapping[str, Size], edges: list[tuple[str, str]], numbers: dict[str, int]) -> list[list[_Item]]:
    """The layers, with slots for the edges that cross them."""
    boxes = {id: _Item(numbers[id], size.width, size.height, id) for id, size in sizes.items()}
    layers: list[list[_Item]] = [[] for _ in range(max(numbers.values()) + 1)]
    for item in boxes.values():
        layers[item.layer].append(item)
    slots: dict[tuple[str, int], _Item] = {}
    for source, target in edges:
        above = boxes[source]
        for number in range(numbers[source] + 1, numbers[target]):
            slot = slots.get((source, number))
            if slot is None:
                slot = slots[source, number] = _Item(number, SLOT, 0, None)
                layers[number].append(slot)
                _join(above, slot)
            above = slot
        _join(above, boxes[target])
    return layers


def _join(above: _Item, below: _Item) -> None:
    above.below.append(below)
    below.above.append(above)


# ---- the order in a layer


def _order(layers: list[list[_Item]]) -> None:
    """Sort each layer by the mean position of the neighbours, down and up in turn; keep the best of all rounds."""
    _number(layers)
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for turn in range(ORDER_ROUNDS):
        if fewest == 0:
            break
        down = turn % 2 == 0
        for layer in layers if down else reversed(layers):
            layer.sort(key=lambda item: _mean_place(item, item.above if down else item.below))
            for place, item in enumerate(layer):
                item.place = place
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best
    _number(layers)


def _number(layers: list[list[_Item]]) -> None:
    for layer in layers:
        for place, item in enumerate(layer):
            item.place = place


def _mean_place(item: _Item, neighbours: list[_Item]) -> float:
    return sum(each.place for each in neighbours) / len(neighbours) if neighbours else float(item.place)


def _crossings(layers: list[list[_Item]]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    count = 0
    for layer in layers:
        ends: list[int] = []
        for item in layer:
            places = sorted(below.place for below in item.below)
            count += sum(len(ends) - bisect_right(ends, place) for place in places)
            for place in places:
                insort(ends, place)
    return count


# ---- x


def _place(layers: list[list[_Item]]) -> None:
    """Move items towards the mean of their neighbours, as far as the others in the layer let them."""
    for layer in layers:
        offsets = _offsets(layer)
        for item, offset in zip(layer, offsets, strict=True):
            item.x = offset - offsets[-1] / 2
    for turn in range(PLACE_ROUNDS):
        last = turn == PLACE_ROUNDS - 1
        for layer in layers if turn % 2 == 0 else reversed(layers):
            wanted = [
                _wanted(item, item.above + item.below if last else item.above if turn % 2 == 0 else item.below)
                for item in layer
            ]
            weights = [SLOT_WEIGHT if item.id is None else 1 for item in layer]
            for item, x in zip(layer, _apart(wanted, weights, _offsets(layer)), strict=True):
                item.x = x


def _wanted(item: _Item, neighbours: list[_Item]) -> float:
    weights = [SLOT_WEIGHT if item.id is None and each.id is None else 1 for each in neighbours]
    return (
        sum(each.x * weight for each, weight in zip(neighbours, weights, strict=True)) / sum(weights)
        if neighbours
        else item.x
    )


def _offsets(layer: list[_Item]) -> list[float]:
    """The offsets of the middles from the first one if all boxes are as close as allowed."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + GAP)
    return offsets


def _apart(wanted: Sequence[float], weights: Sequence[int], offsets: Sequence[float]) -> list[float]:
    """The positions nearest to those wanted that keep the order and the distances.

    Without the offsets the positions only have to grow: neighbours that do not are pooled, and share their mean.

    >>> _apart([0, 0, 100], [1, 1, 1], [0, 10, 20])
    [-5.0, 5.0, 100.0]
    """
    pools: list[tuple[float, int, int]] = []  # the sum of the wanted positions, the sum of the weights, and the count
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        total, mass, count = (want - offset) * weight, weight, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / mass:
            before = pools.pop()
            total, mass, count = total + before[0], mass + before[1], count + before[2]
        pools.append((total, mass, count))
    means = [total / mass for total, mass, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


# ---- y, and the lines


def _stack(layers: list[list[_Item]]) -> int:
    """Stack the layers; returns the total height."""
    y = 0
    for number, layer in enumerate(layers):
        height = max(item.height for item in layer)
        for item in layer:
            item.y = y
            if item.id is None:
                item.height = height
        y += height
        if number < len(layers) - 1:
            aside = max((abs(item.x - below.x) for item in layer for below in item.below), default=0.0)
            y += min(MOST_LAYER_GAP, LAYER_GAP + round(aside / 10))
    return y


def _edges(layers: list[list[_Item]]) -> list[Edge]:
    found: list[Edge] = []
    for layer in layers:
        bottom = max(item.y + item.height for item in layer)
        for item in layer:
            for below in item.below:
                top = item.y if item.id is None else item.y + item.height
                start = (_port(item, below, item.below), bottom)
                end = (_port(below, item, below.above), below.y)
                found.append(Edge(start, end, top, below.id is not None))
    return found


def _port(item: _Item, other: _Item, others: list[_Item]) -> int:
    """The x at which an item's edge to another ends; edges are in the order of the other items."""
    if item.id is None or len(others) == 1:
        return round(item.x)
    ordered = sorted(others, key=lambda each: each.x)
    gap = min(PORT_GAP, (item.width - PORT_GAP) / len(others))
    return round(item.x + (ordered.index(other) - (len(others) - 1) / 2) * gap)
