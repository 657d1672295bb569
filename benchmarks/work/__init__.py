"""Measurements of work: claims, handlers, pick-up, and what a backlog costs."""
