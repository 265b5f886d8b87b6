"""A run as a Perfetto trace: ui.perfetto.dev opens it. https://perfetto.dev/docs/reference/trace-packet-proto"""
