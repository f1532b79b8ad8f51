"""What every part stands on: files, processes, networks, clusters, fingerprints, tables within tables."""
