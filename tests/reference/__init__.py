"""A plain reference engine: the rules of emulated time once more, slow and obvious, to compare the product with.

It shares with the product the values at the border (plan, scheduling, requests, records), the builders of the test kit,
the cost entries with their service times, and the counter-based hash; `tests/tree/test_reference.py` lists the modules.
Everything else is written from the rules: one event heap, ledgers as dicts that are summed anew for every question,
gaps split by walking along a recorded timeline of the router's reasons.
"""
