"""Runs of shortened presets: `elastic rehearse` on a CPU with twins, `elastic gpu-check` on GPUs."""
