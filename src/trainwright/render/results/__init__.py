"""Results of stages: artefacts, datasets, machines, evaluations, audits."""
