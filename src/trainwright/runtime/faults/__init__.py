"""What goes wrong while training: numbers, memory, processes. Loaded by name where it is needed."""
