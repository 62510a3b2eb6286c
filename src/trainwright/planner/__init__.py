"""Says what a run needs before it starts: pure functions over the nouns of ``spec`` and what was measured. No torch.

``trainwright.stages.plan`` puts them together; docs/en/planner.md lists every formula with its source.
"""
