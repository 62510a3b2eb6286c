"""What a network can be trained to do: one file per task, held to the ``Task`` protocol in ``task.py``."""
