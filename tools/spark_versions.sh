#!/bin/sh
# The tests that ask most of Spark, with other versions of it than constraints.txt has; each has an environment of its own.
#
#     tools/spark_versions.sh              # the oldest that pyproject.toml allows
#     tools/spark_versions.sh 4.1.* 4.2.1
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
TESTS="tests/law/test_order_independence.py tests/cases tests/engine/test_kernels.py tests/engine/test_buckets.py
  tests/sources/test_formats.py tests/sources/test_spark_source.py tests/sources/test_json_values.py
  tests/algebra/test_aggregates_spark.py tests/render/test_spark_names.py tests/render/test_duckdb_functions.py"

[ $# -gt 0 ] || set -- '4.0.*'
for version in "$@"; do
  place=.venv/spark-$(echo "$version" | tr -d '.*')
  [ -d "$place" ] || "$PYTHON" -m venv "$place"
  grep -v '^pyspark\|^py4j' constraints.txt >"$place/constraints.txt"
  "$place/bin/pip" install -q --disable-pip-version-check -c "$place/constraints.txt" -e '.[dev]' "pyspark==$version"
  "$place/bin/python" -c 'import pyspark; print("Spark", pyspark.__version__)'
  # shellcheck disable=SC2086
  "$place/bin/pytest" -q -p no:cacheprovider -m 'not slow' $TESTS
done
