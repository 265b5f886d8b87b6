"""The live cluster as clients see it; `python -m bench.live` says how to ask."""
