"""Everything that asks torch about the machine: device, precision, random numbers, phases, memory, probes."""
