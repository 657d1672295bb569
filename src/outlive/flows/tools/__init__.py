"""Tools for the authors of flows. Nothing here runs while an app is defined or served."""

from outlive.flows.tools.lint import Finding, lint

__all__ = ["Finding", "lint"]
