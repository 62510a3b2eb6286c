"""Configuration in layers: defaults < preset < files < environment < ``key=value``; each value knows its origin.

``load`` reads and validates, ``explain`` describes a model's keys and makes its JSON schema. Generic over any pydantic
model; nothing here knows what a recipe is.
"""
