"""``python -m fedrage_flwr``: one run, or with ``-m`` a sweep. See ``conf/config.yaml`` for every key."""

import os
import sys

from fedrage_flwr.errors import UserError
from fedrage_flwr.neighbours import check_neighbours

# Read by flwr and ray at import.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def main() -> int:
    """Check what must hold before anything else is imported, then run."""
    try:
        check_neighbours()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    from fedrage_flwr.command import main as run_command

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
