"""Bytes and seconds between devices: collectives, what each axis sends, experts."""
