"""The inputs of a flow: settings, stages, environment."""
