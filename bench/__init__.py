"""Benchmarks: one command each, JSON on stdout, ratios within one run."""
