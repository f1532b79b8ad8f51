"""What a trajectory table says, with 95 % intervals that know samples of one problem are not independent.

A problem is a cluster, and counts once however often it was sampled. Functions that take `rows` see those of one cell,
or of one curve, on one benchmark; those that take `problems` see one cell's `problem_table`, so that a whole table is
grouped once. Every estimate says on how many problems and trajectories it rests.
"""
