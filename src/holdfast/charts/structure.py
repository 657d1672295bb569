"""TEMP."""
def judge(nodes, problems):
    pass
