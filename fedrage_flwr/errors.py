"""Errors meant for the person at the prompt."""


class UserError(Exception):
    """Something the user can mend: one line that names what was wrong, its value and what is allowed.

    The doors print the line without a traceback and exit with code 1.
    """
