"""Figures, tables and verdicts from the trajectory table. Knows nothing of engines, Prefect or MLflow."""
