"""Records of a task's work: directories, MLflow, Prefect, the terminal."""
