"""Public trace formats, one family per module."""
