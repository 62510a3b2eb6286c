"""Commands about a recipe: all of it (``run``), one stage of it, a look at its keys (``config``)."""
