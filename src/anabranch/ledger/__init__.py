"""The ledger: what a home holds, version by version, on a local disk.

One record a version is the only commit point; the Delta tables repeat it for other tools. Nothing here knows Spark,
SQL or what the tables mean.
"""

from anabranch.ledger.ledger import Ledger
from anabranch.ledger.records import Bucket, DataFile, Draft, Record, StreamRun, TableChange
from anabranch.ledger.snapshot import Snapshot, StreamState
from anabranch.ledger.tables import arrow_schema

__all__ = [
    "Bucket",
    "DataFile",
    "Draft",
    "Ledger",
    "Record",
    "Snapshot",
    "StreamRun",
    "StreamState",
    "TableChange",
    "arrow_schema",
]
