"""Accidents on a cluster of real processes under live load, drawn with a seed; `scripts/accidents` runs many."""
