"""The working half of the demo: Spark, the views, their runs, and a look at the hot items every now and then.

It works in threads of its own and leaves what it knows in plain attributes; how that looks is not its business.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.values import timestamp_text
from anabranch.demo.bids import MINUTE, Feeder
from anabranch.demo.proof import QUESTIONS, Verdict, arrivals, count_dropped, judge, name_bids

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from anabranch.session import RunReport, Session

SECONDS_BETWEEN_LOOKS = 1.5
#: Looking costs a Spark job, for which runs wait: on a busy machine it is done less often.
LOOKING_SHARE = 0.4


class Flow:
    """Carries the bids through the views, from starting Spark to the verdicts."""

    def __init__(
        self,
        script: str,
        home: Path,
        feeder: Feeder,
        *,
        spark: SparkSession | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.script = script
        self.feeder = feeder
        self.phase = "starting Spark"
        self.reports: list[RunReport] = []
        self.hot: pa.Table | None = None
        self.hot_end: int | None = None
        self.started_feeding: float | None = None
        self.stopped_feeding: float | None = None
        self.verdicts: list[Verdict] = []
        self.error: BaseException | None = None
        self._home = home
        self._spark, self._master, self._conf = spark, master, conf or {}
        self._clock = clock
        self._session: Session | None = None
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._work, name="demo-flow", daemon=True)

    # ---- what the watcher may ask

    @property
    def busy(self) -> bool:
        return self._thread.is_alive()

    @property
    def rows(self) -> int:
        return self.reports[-1].total_rows if self.reports else 0

    @property
    def late(self) -> int:
        return sum(report.late for report in list(self.reports))

    @property
    def progress(self) -> int | None:
        return self.reports[-1].progress if self.reports else None

    @property
    def feeding_seconds(self) -> float:
        if self.started_feeding is None:
            return 0.0
        return (self.stopped_feeding or self._clock()) - self.started_feeding

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def cancel(self) -> None:
        """Stop after the run that is under way."""
        self._cancelled.set()
        self.feeder.cancel()
        if self._session is not None:
            self._session.stop.set()

    # ---- the work

    def _work(self) -> None:
        try:
            with _connect(self._home, self._spark, self._master, self._conf) as session:
                self._session = session
                session.spark  # noqa: B018 (starts it)
                self.phase = "making the stream and three views"
                for _ in session.execute(self.script):
                    if self._cancelled.is_set():
                        return
                self._flow(session)
                if not self._cancelled.is_set():
                    self._prove(session)
        except BaseException as error:
            self.error = error
        finally:
            self.feeder.cancel()

    def _flow(self, session: Session) -> None:
        expected = self.feeder.bids.rows

        def on_run(report: RunReport) -> None:
            self.reports.append(report)
            if report.total_rows >= expected or self._cancelled.is_set():
                session.stop.set()
            elif report.progress is None:
                self.feeder.go_on.set()  # there will be nothing to look at
            if self.feeder.error is not None:
                raise self.feeder.error

        done = threading.Event()
        looker = threading.Thread(target=self._look, args=(session, done), name="demo-looker", daemon=True)
        self.phase = "the first run, on a cold JVM"
        self.started_feeding = self._clock()
        self.feeder.go.set()
        looker.start()
        try:
            session.run(self.script, on_run=on_run)
        finally:
            done.set()
        self.stopped_feeding = self._clock()
        looker.join()
        if self.error is not None:
            raise self.error

    def _look(self, session: Session, done: threading.Event) -> None:
        """Read the hot items of the newest closed window, at the version of the last run."""
        seen = -1
        while not done.wait(0.1):
            if not self.reports or self.reports[-1].version == seen or self.reports[-1].progress is None:
                continue
            report = self.reports[-1]
            assert report.progress is not None
            end = report.progress // MINUTE * MINUTE
            before = self._clock()
            try:
                table = session.sql(
                    f"SELECT place, auction, bids FROM hot_items AS OF VERSION {report.version} "
                    f"WHERE window_end = TIMESTAMP '{timestamp_text(end)}' ORDER BY place, auction LIMIT 10"
                ).toArrow()
            except Exception as error:
                self.error = self.error or error
                session.stop.set()
                return
            if table.num_rows:
                self.hot, self.hot_end = table, end
            seen = report.version
            took = self._clock() - before
            if not self.feeder.go_on.is_set():
                took = 0.0  # the first one says nothing about the others
                self.phase = "bids flow into the views"
                self.feeder.go_on.set()
            done.wait(max(SECONDS_BETWEEN_LOOKS, took / LOOKING_SHARE))

    def _prove(self, session: Session) -> None:
        folder = self._home.parent / "bids"
        runs = [(report.rows, report.progress) for report in self.reports]
        arrived = arrivals(sorted(folder.iterdir()), runs)
        name_bids(session.spark, folder)
        for question in QUESTIONS:
            self.phase = f"comparing {question.view} with a Spark batch query"
            view = session.sql(f"SELECT * FROM {question.view}").toArrow()
            if self._cancelled.is_set():
                return
            batch = session.spark.sql(question.batch).toArrow()
            self.verdicts.append(judge(question, view, batch, count_dropped(arrived, question.slide)))
            if self._cancelled.is_set():
                return


def _connect(home: Path, spark: SparkSession | None, master: str | None, conf: Mapping[str, str]) -> Session:
    # Here and not at the top: the first line of the demo must not wait for these imports.
    from anabranch.session import connect

    return connect(home, spark, master=master, conf=conf)
