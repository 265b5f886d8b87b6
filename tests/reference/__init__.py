"""A plain reference engine: the rules of emulated time once more, slow and obvious, to compare the product with.

It shares with the product only the values at the border (plan, scheduling, request, records), the cost entries and the
counter-based hash. Everything else is written from the rules: one event heap, ledgers as dicts that are summed anew
for every question, gaps split by walking along a recorded timeline of the router's reasons.
"""
