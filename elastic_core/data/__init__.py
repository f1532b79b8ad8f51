"""Data sets: what every stage reads, and how it is built."""
