"""A model behind an HTTP server with budgets. The middleware sets each request's budget; the engine keeps it
(`elastic_core.engines.budgets.processor`)."""
