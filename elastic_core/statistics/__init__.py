"""Estimates of a trajectory table with 95 % intervals, in the order of the README."""
