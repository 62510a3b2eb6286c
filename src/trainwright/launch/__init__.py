"""Launchers of jobs: one file for each launcher. A launcher knows jobs and no stage."""
