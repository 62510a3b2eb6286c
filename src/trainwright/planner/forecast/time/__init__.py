"""Seconds of a step: the work, the passes, the pipeline."""
