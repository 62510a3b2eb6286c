"""Tables, pictures and JSON documents of nouns: what a plan, a device, a dataset look like to a reader.

Each function takes nouns and writes to a ``Page`` or returns plain values; nothing here parses arguments or prints.
"""
