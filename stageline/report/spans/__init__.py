"""Requests as OpenTelemetry traces: one span per request, one child per stage visit."""
