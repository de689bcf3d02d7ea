"""The pure algebra: which windows a time belongs to, how far a stream has come, how aggregates are merged, when a
key shows its result.

Everything here is a function over values, or writes SQL text for others to run. Nothing here does I/O, reads
a clock or knows Spark, the ledger or the plan.
"""
