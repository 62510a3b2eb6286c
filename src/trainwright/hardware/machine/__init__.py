"""This machine: its facts, its probes, and the record of both."""
