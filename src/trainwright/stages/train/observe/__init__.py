"""Trainings that are looked at: a part of a run is made again beside it, and nothing of the run is touched."""
