"""Stageline: an exact emulator of distributed LLM serving clusters."""

__version__ = "0.1.0"
