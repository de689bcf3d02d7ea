"""The pure algebra: the windows of a time, the progress of a stream, the merging of aggregates, the triggers of a
key.

Everything here is a function over values, or writes SQL text for the engine to run. Nothing here does I/O, reads
a clock or knows Spark, the ledger or the plan.
"""
