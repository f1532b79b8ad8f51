"""ReasonFlux: thought templates, their library, and how the one that fits a problem is found."""
