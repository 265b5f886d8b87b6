"""Fits the kernel constants of the catalogue's devices to public kernel tables."""
