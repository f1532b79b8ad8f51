"""The embedded default: a reasoning model small enough for a CPU, in which the paper's effects appear."""
