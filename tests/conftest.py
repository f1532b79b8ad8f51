"""Settings of every test run."""

from hypothesis import HealthCheck, settings

# How fast the machine is decides no test. Half of hypothesis' usual examples keep the unit tests under a minute; every
# run draws others.
settings.register_profile("elastic", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elastic")
