"""Changes of the views whose changes are kept, for one commit: one module a kind of node."""
