"""EleutherAI's lm-evaluation-harness: its tasks, a model as it asks one, what it measures. Needs lm-eval."""

import os

os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported: the harness draws bars of its own
