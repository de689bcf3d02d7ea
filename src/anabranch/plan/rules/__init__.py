"""Rules: functions from a relation to a better one with the same rows, applied in a fixed order.

A rule knows relations and nothing of engines. It returns None where it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anabranch.ir.expr import Column, Expr
from anabranch.ir.rel import Rel, Scan
from anabranch.types import SparkType

Types = Callable[[Sequence[Expr], Rel], list[SparkType]]


@dataclass(frozen=True)
class RuleContext:
    """The services that a rule may use."""

    types: Types  # of expressions over a relation, from Spark's analyser
    new: Callable[[str, SparkType], Column]  # a new column
    #: The query of a view instead of a scan of it, where the view shows every record of its streams.
    expand: Callable[[Scan], Rel | None] = lambda _: None
    reasons: list[str] = field(default_factory=list)  # why rows are kept; rules add to them


Rule = Callable[[Rel, RuleContext], Rel | None]
#: Called with the name of each rule that changed a plan, and the plan after it.
Trace = Callable[[str, Rel], None]


def normalize(rel: Rel, rules: Sequence[Rule], context: RuleContext, trace: Trace | None = None) -> Rel:
    """A plan after all these rules, in order; the same object if none applies."""
    for rule in rules:
        made = _rewritten(rel, rule, context)
        if trace is not None and made is not rel:
            trace(rule.__name__, made)
        rel = made
    return rel


def _rewritten(rel: Rel, rule: Rule, context: RuleContext) -> Rel:
    """A plan with a rule applied to each node, bottom up. Shared nodes remain shared."""
    done: dict[int, tuple[Rel, Rel]] = {}  # keeps the old node alive, so that its id is not reused

    def change(node: Rel) -> Rel:
        known = done.get(id(node))
        if known is None:
            made = node.rebuilt(change)
            while (better := rule(made, context)) is not None:
                made = better
            known = done[id(node)] = node, made
        return known[1]

    return change(rel)
