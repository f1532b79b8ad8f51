"""The `elastic` command line: its commands, and the bodies of those that start no flow."""
