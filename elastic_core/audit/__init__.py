"""Test from outside whether a server keeps a thinking budget: `audit` in run.py."""
