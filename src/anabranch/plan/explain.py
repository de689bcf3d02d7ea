"""What a query will do, in words: its canonical form, which part lives on which state, and why."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog, Field, Panes, Rows, View
from anabranch.plan.views import Planned, Surroundings, plan_view
from anabranch.sql.durations import duration_text
from anabranch.sql.syntax import Query


def explain(text: str, query: Query, catalog: Catalog, world: Surroundings, fields: tuple[Field, ...]) -> list[str]:
    """The lines of EXPLAIN."""
    bound = Binder(text, catalog, query).bind()
    kinds = {reference.kind for reference in bound.references.values()}
    if not kinds & {"stream", "view"}:
        return ["batch query: it reads no stream", *_outputs(fields)]
    if kinds <= {"view", "table"}:
        lines = ["query over views: computed when read, from their state"]
        for reference in bound.references.values():
            if reference.kind == "view":
                lines += _view_lines(catalog.view(reference.target), catalog)
        return [*lines, *_outputs(fields)]
    planned = plan_view(
        id="_explained", name="_explained", text=text, sql=query.span.of(text), query=query, start="beginning",
        fields=fields, catalog=catalog, world=world,
    )  # fmt: skip
    objects = {each.id: each for each in planned.objects}
    return [*_plan_lines(planned, catalog, objects), *_outputs(fields)]


def _plan_lines(planned: Planned, catalog: Catalog, objects: Mapping[str, object]) -> list[str]:
    view = planned.view
    lines: list[str] = []
    for use in view.blocks:
        panes = objects.get(use.panes, catalog.objects.get(use.panes))
        assert isinstance(panes, Panes)
        lines += _panes_lines(view, use.panes, panes, catalog)
    if view.rows is not None:
        rows = objects.get(view.rows)
        assert isinstance(rows, Rows)
        lines.append(f"stateless: each row of {catalog.stream(rows.stream).name} is filtered and projected on its own")
        lines.append("  append-only; state: the rows of the view itself, UNBOUNDED")
    for reason in planned.reasons:
        lines.append(f"computed over rows at each read, because {reason}")
    for id in view.streams.values():
        lines.append(f"  state: the rows of stream {catalog.stream(id).name}, UNBOUNDED")
    for id in view.views.values():
        lines.append(f"over view {catalog.view(id).name}: computed when read, from its state")
    if view.emit == "close":
        lines.append("emits when a window closes; late rows correct it: retract the row shown, insert the new one")
        how = "on the driver, beside the files of the ledger" if view.direct else "by Spark, over all closed windows"
        lines.append(f"  changes computed {how}")
    else:
        lines.append("emits every change; a read shows the state after the last run")
    return lines


def _view_lines(view: View, catalog: Catalog) -> list[str]:
    lines = [f"view {view.name}"]
    for use in view.blocks:
        lines += [f"  {line}" for line in _panes_lines(view, use.panes, catalog.panes(use.panes), catalog)]
    if view.rows is not None:
        lines.append("  stateless: its rows are appended run by run")
    for id in view.streams.values():
        lines.append(f"  computed over the rows of stream {catalog.stream(id).name}")
    for id in view.views.values():
        lines += [f"  {line}" for line in _view_lines(catalog.view(id), catalog)]
    if view.emit == "close":
        lines.append("  emits when a window closes")
    return lines


def _panes_lines(view: View, id: str, panes: Panes, catalog: Catalog) -> list[str]:
    stream = catalog.stream(panes.stream)
    use = next(each for each in view.blocks if each.panes == id)
    keys = ", ".join(key.name for key in panes.keys) or "none"
    lines = [f"partial aggregate of stream {stream.name} in pane table {id}: keys {keys}"]
    windows = use.sliding
    if windows is not None:
        kind = "TUMBLE" if windows.tumbling else "HOP"
        slide = "" if windows.tumbling else f" every {duration_text(windows.slide)}"
        panes_each = windows.size // panes.grain
        lines.append(
            f"  {kind} {duration_text(windows.size)}{slide}; pane {duration_text(panes.grain)},"
            f" {panes_each} pane{'' if panes_each == 1 else 's'} a window"
        )
        lines.append("  state: one row a run, pane and key, reduced to one a pane and key; grows with time")
    else:
        lines.append("  state: one row a run and key, reduced to one a key; bounded by the number of keys")
    for name in use.columns:
        lines.append(f"  {name} = {panes.column(name).partial}")
    others = sorted(
        other.name for other in catalog.of(View) if other.id != view.id and any(b.panes == id for b in other.blocks)
    )
    if others:
        lines.append(f"  shared with {', '.join(others)}")
    for table in panes.statics.values():
        found = catalog[table]
        lines.append(f"  joined with static table {getattr(found, 'name', table)}, read once")
    return lines


def _outputs(fields: tuple[Field, ...]) -> list[str]:
    return ["output: " + ", ".join(f"{field.name} {field.type}" for field in fields)]
