"""Algorithms of training, one per file: how rollouts of a problem are made, and what advantage each token gets."""
