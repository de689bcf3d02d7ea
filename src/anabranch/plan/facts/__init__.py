"""Properties of a query that follow from its typed form: pure functions, without Spark and without a catalog."""
