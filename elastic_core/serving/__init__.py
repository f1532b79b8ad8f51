"""A model behind an HTTP server: the budgets that it offers, and what keeps them."""
