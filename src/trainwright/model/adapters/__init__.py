"""Low-rank adapters beside a network's matrices: the layers, their files, and PEFT's."""
