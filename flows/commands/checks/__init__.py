"""Runs of shortened presets: `elastic rehearse` on a CPU with twins, `make gpu` on GPUs."""
