"""The benchmark behind ``holdfast bench``: how items are claimed by many, and what goes wrong."""
