"""What a flow runs with: settings, inputs, environment."""
