"""A training of several processes, from outside: hosts that meet, and a mesh that is only counted."""
