"""Benchmarks: one command each, results on stdout, ratios measured within one run. CONTRIBUTING.md lists them."""
