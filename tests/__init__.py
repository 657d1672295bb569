"""The tests. A package, so that ``tests.services`` is ours whatever else is installed."""
