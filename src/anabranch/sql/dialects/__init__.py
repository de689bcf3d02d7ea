"""Notations of other systems: each is read into the nodes that a window function in FROM would be."""
