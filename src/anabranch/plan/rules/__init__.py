"""Rules: functions from a relation to a better one that gives the same rows, applied in one order.

A rule knows relations and nothing of engines. It gives None where it does not apply.
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
    """What a rule may ask for."""

    types: Types  # of expressions over a relation, as Spark tells them
    new: Callable[[str, SparkType], Column]  # a column of its own
    #: The query of a view in the place of a scan of it, where it shows each record that its streams ever made.
    expand: Callable[[Scan], Rel | None] = lambda _: None
    reasons: list[str] = field(default_factory=list)  # why rows are kept; rules add to them


Rule = Callable[[Rel, RuleContext], Rel | None]
#: Told of each rule that changed a plan: its name, and the plan after it.
Trace = Callable[[str, Rel], None]


def normalize(rel: Rel, rules: Sequence[Rule], context: RuleContext, trace: Trace | None = None) -> Rel:
    """A plan after all these rules, one after the other; the same object if none applies."""
    for rule in rules:
        made = _rewritten(rel, rule, context)
        if trace is not None and made is not rel:
            trace(rule.__name__, made)
        rel = made
    return rel


def _rewritten(rel: Rel, rule: Rule, context: RuleContext) -> Rel:
    """A plan with a rule applied to each of its nodes, those below first. What was shared stays shared."""
    done: dict[int, tuple[Rel, Rel]] = {}  # the node is kept beside its new form, so that its id stays its own

    def change(node: Rel) -> Rel:
        known = done.get(id(node))
        if known is None:
            made = node.rebuilt(change)
            while (better := rule(made, context)) is not None:
                made = better
            known = done[id(node)] = node, made
        return known[1]

    return change(rel)
