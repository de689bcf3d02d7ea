"""Computes the changes of nodes for one commit: one module per kind of node."""
