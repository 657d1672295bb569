"""TEMP."""
MARK = "XState 4"
def modernised(document, problems):
    return document
