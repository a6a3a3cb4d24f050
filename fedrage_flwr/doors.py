"""What every door does before the house is entered."""

import os
import sys
from collections.abc import Callable, Sequence

from fedrage_flwr.errors import UserError
from fedrage_flwr.neighbours import check_neighbours

SWITCHES = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def set_switches() -> None:
    """Keep Flower and Ray off the network, unless the environment says otherwise. They read this when imported."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)


def enter(main: Callable[[Sequence[str]], None]) -> int:
    """Call ``main`` with the words typed; return the exit code, with an error of the user's as one line."""
    try:
        check_neighbours()
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of `… | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
