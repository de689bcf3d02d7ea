"""What can be said of a query from its typed form alone: pure functions, without Spark and without a catalog."""
