"""What the catalogue holds: devices, models, software, prices."""
