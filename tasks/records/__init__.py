"""Where a task's work is recorded: directories, MLflow, Prefect, the terminal."""
