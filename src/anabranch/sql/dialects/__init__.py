"""Notations of other systems, parsed into the syntax tree of window functions in FROM."""
