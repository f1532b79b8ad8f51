"""The one exception that reaches a user as a sentence instead of a traceback."""


class UserError(Exception):
    """The user's input or machine is at fault. The message names what was found, what was expected, what to do."""
