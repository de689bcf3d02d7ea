"""The command line: commands, outputs and the console. Knows the engine only by `interface.py`."""
