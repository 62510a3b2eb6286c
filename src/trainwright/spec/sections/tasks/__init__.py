"""Sections of tasks, beside what all of them have."""
