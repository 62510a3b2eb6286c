"""Training with several processes: how they are started, what each does, and what they agree on."""
