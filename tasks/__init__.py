"""Prefect tasks: retries, caching, progress and artifacts around one call of the library each."""
