"""The rules for a query, in order; which ones depends on when its answer is computed. A new rule goes into each tuple
whose queries it helps, mostly RULES and READ_RULES."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.plan.rules import Rule
from anabranch.plan.rules.decorrelate import decorrelate
from anabranch.plan.rules.grouping_sets import expand_grouping_sets
from anabranch.plan.rules.merge_projections import merge_projections
from anabranch.plan.rules.raise_joins import raise_joins, raise_joins_above_rows
from anabranch.plan.rules.records import number_records, separate_counted
from anabranch.plan.rules.separate_joins import separate_joins
from anabranch.plan.rules.widen_top_n import widen_top_n
from anabranch.sql.syntax import Query

#: For a query whose changes are kept. After these it has keys wherever possible.
RULES = (decorrelate, expand_grouping_sets, merge_projections, separate_joins, raise_joins, widen_top_n)
#: For a query that is computed when it is read.
READ_RULES = (decorrelate, merge_projections, separate_joins, raise_joins)
#: For a query that waits key by key: it is shown as written.
KEY_RULES = (merge_projections, separate_joins, raise_joins)
#: For a query whose trigger fires at each record,
RECORD_RULES = (merge_projections, separate_joins, raise_joins_above_rows)
#: and for a query whose trigger counts records.
COUNTING_RULES = (
    merge_projections, number_records, decorrelate, separate_counted, separate_joins, raise_joins_above_rows,
)  # fmt: skip


def rules_for(query: Query, kept: bool) -> Sequence[Rule]:
    """The rules for a query; `kept` says that its changes are."""
    emissions = list(query.emissions())
    if any((each.counting or 1) > 1 for each in emissions):
        return COUNTING_RULES
    if any(each.counting is not None for each in emissions):
        return RECORD_RULES
    if not kept:
        return READ_RULES
    return KEY_RULES if any(each.by_key for each in emissions) else RULES
