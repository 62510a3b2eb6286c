"""Sentences of words with a label each: what is in a record, how it is cleaned, how it becomes tokens."""
