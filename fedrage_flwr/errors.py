"""Errors meant for the person at the prompt."""


class UserError(Exception):
    """Something the user can mend: one line that names what was wrong, its value and what is allowed.

    The doors print the line without a traceback and exit with code 1. Line breaks in it, of a value typed, become spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


class Diverged(UserError):
    """A run was ended because its losses left every bound: its step sizes are too large."""


class Interrupted(Exception):
    """Somebody asked the process to end, and the run is safe in a checkpoint.

    Args:
        message: says how to go on.
        code: the exit code.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def one_line(error: Exception) -> str:
    """The text of an error, its line breaks made spaces."""
    return " ".join(str(error).split())
