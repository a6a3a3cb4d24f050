"""One file per way of sharing examples out among clients; ``base.py`` has what they have in common."""
