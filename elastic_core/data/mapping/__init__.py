"""How the rows of each upstream source become problems, one module per domain."""
