"""Settings of every test run."""

from hypothesis import HealthCheck, settings

# How fast the machine is decides no test.
settings.register_profile("elastic", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elastic")
