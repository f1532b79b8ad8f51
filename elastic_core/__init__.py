"""The library: strategies, engines, sweep, statistics, rewards, data, training. Knows nothing of Prefect or MLflow."""
