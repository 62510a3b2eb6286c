"""Trainwright: one recipe from plan to served model, with predictions held against measurements."""

__version__ = "0.1.0"
