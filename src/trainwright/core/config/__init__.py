"""Configuration in layers: defaults < preset < files < environment < ``key=value``; each value knows its origin.

``load`` reads and validates, ``explain`` and ``keys`` describe a model's keys, ``schema`` is its JSON schema.
Generic over any pydantic model; nothing here knows what a recipe is.
"""

from trainwright.core.config.explain import Explanation, explain, keys, schema
from trainwright.core.config.load import Loaded, load
from trainwright.core.config.tree import Origin

__all__ = ["Explanation", "Loaded", "Origin", "explain", "keys", "load", "schema"]
