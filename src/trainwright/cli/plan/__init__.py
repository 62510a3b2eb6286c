"""``plan`` and ``recommend``: questions before anything is started."""
