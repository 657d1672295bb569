"""Measurements of Outlive beside the raw driver doing the same durable work, as ratios."""
