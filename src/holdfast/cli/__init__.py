"""The command line: ``holdfast <noun> <verb>``, one module per noun."""
