"""The report as one HTML file that opens from disk: what `report.md` says, and a reader of the trajectories."""
