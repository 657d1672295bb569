"""The benchmark behind ``outlive bench``: how items are claimed by many, and what goes wrong."""
