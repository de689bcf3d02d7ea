"""Spellings of several systems as one: each is a function from syntax to syntax."""
