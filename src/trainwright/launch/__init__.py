"""Where work runs: launchers of jobs, one file for each, and processes of this machine that end with their parent.

A launcher knows jobs and no stage.
"""
