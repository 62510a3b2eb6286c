"""What several ranks share, counted: stages of a pipeline, and the record of a dry run."""
