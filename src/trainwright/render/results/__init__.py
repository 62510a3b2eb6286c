"""What stages made and measured: artefacts, datasets, machines, evaluations, audits."""
