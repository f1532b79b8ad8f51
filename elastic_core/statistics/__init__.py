"""What a trajectory table says, with 95 % intervals that know samples of one problem are not independent.

A problem is a cluster, and counts once however often it was sampled. Functions that take `rows` see those of one cell,
or of one curve, on one benchmark; those that take `problems` see one cell's `problem_table`, so that a whole table is
grouped once. Every estimate says on how many problems and trajectories it rests.

- `estimates`: what an estimate is, from rows to problems, and where the intervals come from; lengths in tokens;
- `accuracy`: avg@k and paired differences, pass@k and maj@k with bootstrap intervals;
- `intervals`: of a share and of a mean of differences, from one value per problem;
- `seeds`: models that were trained with several seeds, and what these add to an interval;
- `variance`: what an interval is made of, and what would narrow it;
- `simultaneous`: many differences whose intervals hold together;
- `curves`: area under accuracy over log tokens, differences at equal tokens, the log-linear law;
- `budgets`: what the next tokens buy and where they hurt, accuracy at any budget, the cheapest one to set;
- `choices`: the best cell under a limit of cost, the cheapest within so many points;
- `cost`: what a response costs, and the frontier of accuracy and cost;
- `thinking`: what each problem needs, and the thinking that went past it or could not help;
- `responses`: how responses end.
"""
