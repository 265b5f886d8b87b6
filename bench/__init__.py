"""Benchmarks: one command each, figures on stdout, ratios within one run. CONTRIBUTING.md lists them."""
