"""What a flow runs with: settings, stages, environment."""
