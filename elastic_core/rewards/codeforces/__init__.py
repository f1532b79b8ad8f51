"""Codeforces: the standings of its contests, and the rating that they give a model."""
