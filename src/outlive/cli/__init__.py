"""The command line: ``outlive <noun> <verb>``, one module per noun."""
