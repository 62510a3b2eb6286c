"""``hardware`` and ``catalog``: what is known of devices, models, software and prices."""
