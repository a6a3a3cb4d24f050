"""Where clients run: ``backend.name`` → grid."""

GRIDS = {
    "inline": "fedrage_flwr.grids.inline:InlineGrid",
    "ray": "fedrage_flwr.grids.ray:RayGrid",
}
