"""`elastic playground`: a page to try a model under token budgets, strategies side by side.

The strategies, the engine and the grader are those of training and sweeps. What is drawn of a sample is remembered, so
that another budget cuts the same thought.

Promised: loopback only unless there is a password; without one a token in the address, as Jupyter has it; logins no
faster than a person's; no file of this machine leaves it; bounded input, concurrency and time; model text is shown as
text; nothing is asked of any other host. Not promised: encryption (put a proxy in front that adds TLS), and protection
of the engine against those who know the password.
"""
