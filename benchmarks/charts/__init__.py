"""Measurements of statecharts."""
