"""What a trajectory table says, with 95 % intervals that know samples of one problem are not independent.

A problem is a cluster, and counts once however often it was sampled. Functions that take `rows` see those of one cell,
or of one curve, on one benchmark; those that take `problems` see one cell's `problem_table`, so that a whole table is
grouped once. Every estimate says on how many problems and trajectories it rests.

- `estimates`: what an estimate is, from rows to problems, the bootstrap; lengths in tokens;
- `intervals`: of a share, of a mean of differences, of many together, and what several seeds of training add;
- `seeds`: names of models that were trained with several seeds, and how a table tells these apart;
- `accuracy`: avg@k, paired differences, and what an interval is made of;
- `at_k`: pass@k, maj@k, thinking in parallel;
- `budgets`: what the next tokens buy and where they hurt, accuracy at any budget;
- `curves`: differences at equal tokens, the log-linear law;
- `cost`: what a response costs, the frontier of accuracy and cost, the most accurate cell under a limit;
- `responses`: how responses end, and where their thinking goes;
- `which_budget`: the budget to set.
"""
