"""Preregistered paired RL comparisons on a Tinker-compatible training service."""

__version__ = "0.1.0"
