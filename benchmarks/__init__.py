"""Measurements of Holdfast beside the raw driver doing the same durable work, as ratios."""
