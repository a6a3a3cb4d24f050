"""``python -m fedrage_flwr.prepare images|table|text SOURCE site.npz``: makes one file of your data.

It is a node's private file (``dataset=private``), or all the data of a simulation (``dataset=file dataset.path=site.npz``).

    prepare images photos/ site.npz --size 32 32                     a folder for each class, as torchvision's ImageFolder
    prepare table patients.csv site.npz --label outcome              .csv or .parquet; every other column is a number
    prepare text reviews.csv site.npz --text review --label stars    words hashed into --dimension counters
    prepare table patients.csv all.npz --label outcome --client ward   whose each row is: a simulation with these clients

All sites must give the same ``--classes`` where one of them may lack a class, and the same normalisation: nothing is fitted on
one site's data. What the server has to say about the data is printed at the end.
"""

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrage_flwr.data.private import read_private
from fedrage_flwr.errors import UserError, one_line

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
SPECIAL = ("true", "false", "null", "inf", "nan")  # to Hydra
Arrays = dict[str, np.ndarray]


def main(arguments: Sequence[str]) -> int:
    """Make one file; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        arrays = {"images": _images, "table": _table, "text": _text}[options.kind](options)
        arrays["mean"], arrays["std"] = np.array(options.mean), np.array(options.std)
        write(options.target, arrays)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    counts = np.bincount(arrays["labels"], minlength=len(arrays["classes"])).tolist()
    print(
        f"{options.target}: {len(arrays['labels'])} examples, {dict(zip(arrays['classes'].tolist(), counts, strict=True))}"
    )
    if "owners" in arrays:
        sizes, names = np.bincount(arrays["owners"]), arrays["clients"].tolist()
        print(
            f"{len(names)} clients of {sizes.min()} to {sizes.max()} examples, numbered from {names[0]} to {names[-1]}"
        )
        partition = f" partition=natural num_clients={len(names)}"
    else:
        partition = ""
    print(f"in a simulation: dataset=file dataset.path={options.target}{partition}")
    if not partition:
        print("the run needs: " + shlex.join(overrides(arrays)))
    return 0


def overrides(arrays: Arrays) -> list[str]:
    """Return the words that describe a file to the server."""

    def listed(values: Sequence[Any]) -> str:
        return "[" + ",".join(map(_hydra, values)) + "]"

    return [
        "dataset=private",
        "partition=local",
        f"dataset.classes={listed(arrays['classes'].tolist())}",
        f"dataset.input_shape={listed(arrays['inputs'].shape[1:])}",
        f"dataset.mean={listed(arrays['mean'].tolist())}",
        f"dataset.std={listed(arrays['std'].tolist())}",
        f"dataset.scale={float(arrays['scale'])}",
    ]


def _hydra(value: Any) -> str:
    """Write a value as Hydra reads it: quoted where it would not be taken for one text."""
    plain = not isinstance(value, str) or (re.fullmatch(r"[^\W\d][\w./-]*", value) and value.lower() not in SPECIAL)
    return f"{value}" if plain else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def write(target: Path, arrays: Arrays) -> None:
    """Write the file under another name, read it back as a node would, and rename it.

    Raises:
        UserError: a node would refuse it, or it cannot be written.
    """
    if target.suffix != ".npz":
        raise UserError(f"{target}: the file made must end in .npz")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, suffix=".npz")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            read_private(Path(name))
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error})") from error


def _images(options: argparse.Namespace) -> Arrays:
    from PIL import Image

    if not options.source.is_dir():
        raise UserError(f"{options.source} is not a folder of class folders")
    found = sorted(path.name for path in options.source.iterdir() if path.is_dir())
    classes = _classes(options, found)
    inputs, labels = [], []
    for label, name in enumerate(classes):
        folder = options.source / name
        for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGES):
            try:
                with Image.open(path) as image:
                    pixels = np.asarray(
                        image.convert("L" if options.grey else "RGB").resize(options.size[::-1]), np.uint8
                    )
            except OSError as error:
                raise UserError(f"{path} is no image that can be read ({error})") from error
            inputs.append(pixels[None] if options.grey else pixels.transpose(2, 0, 1))
            labels.append(label)
    if not inputs:
        raise UserError(f"{options.source} holds no image ({', '.join(IMAGES)})")
    return _arrays(np.stack(inputs), labels, classes, 255.0)


def _table(options: argparse.Namespace) -> Arrays:
    frame = _read_table(options.source)
    column, owners = _column(frame, options.label, options.source), _owners(frame, options)
    named = [name for name in (options.label, options.client) if name is not None]
    features = frame.drop(columns=named) if options.columns is None else frame[_known(frame, options)]
    try:
        inputs = features.to_numpy(dtype=np.float32)
    except (ValueError, TypeError) as error:
        hint = "every column but the label and the client must hold numbers; --columns names those that do"
        raise UserError(f"{options.source}: {hint} ({one_line(error)[:100]})") from error
    if not np.isfinite(inputs).all():
        raise UserError(f"{options.source}: numbers are missing or not finite")
    classes = _classes(options, sorted(set(column)))
    return _arrays(inputs, [classes.index(value) for value in column], classes, 1.0) | owners


def _text(options: argparse.Namespace) -> Arrays:
    from sklearn.feature_extraction.text import HashingVectorizer

    frame = _read_table(options.source)
    column, texts = (_column(frame, name, options.source) for name in (options.label, options.text))
    hashed = HashingVectorizer(n_features=options.dimension, alternate_sign=False, dtype=np.float32).transform(texts)
    classes = _classes(options, sorted(set(column)))
    return _arrays(hashed.toarray(), [classes.index(value) for value in column], classes, 1.0) | _owners(frame, options)


def _owners(frame: Any, options: argparse.Namespace) -> Arrays:
    """Return whose each row is, numbered as the values of the column sort; nothing where no column was named."""
    if options.client is None:
        return {}
    names = np.array(_column(frame, options.client, options.source), np.str_)
    whole = frame[options.client].dtype.kind in "iu"  # 2 comes before 10, but "10" before "2"
    clients, owners = np.unique(frame[options.client].to_numpy() if whole else names, return_inverse=True)
    return {"owners": owners.astype(np.int64), "clients": clients.astype(np.str_)}


def _arrays(inputs: np.ndarray, labels: Sequence[int], classes: Sequence[str], scale: float) -> Arrays:
    return {
        "inputs": inputs,
        "labels": np.array(labels, np.int64),
        "classes": np.array(classes, np.str_),
        "scale": np.array(scale),
    }


def _read_table(source: Path) -> Any:
    import pandas as pd

    if source.suffix not in (".csv", ".parquet"):
        raise UserError(f"{source} must end in .csv or .parquet")
    try:
        return pd.read_parquet(source) if source.suffix == ".parquet" else pd.read_csv(source)
    except ImportError as error:
        raise UserError(f"{source}: parquet needs pyarrow (pip install pyarrow); or store it as CSV") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{source} cannot be read ({one_line(error)[:160]})") from error


def _column(frame: Any, name: str, source: Path) -> list[str]:
    if name not in frame.columns:
        raise UserError(f"{source} lacks the column {name}; it has {', '.join(map(str, frame.columns))}")
    if frame[name].isna().any():
        raise UserError(f"{source}: the column {name} has empty cells")
    return [str(value) for value in frame[name]]


def _known(frame: Any, options: argparse.Namespace) -> list[str]:
    for name in options.columns:
        _column(frame, name, options.source)
    return list(options.columns)


def _classes(options: argparse.Namespace, found: list[str]) -> list[str]:
    if options.classes is None:
        return found
    unknown = sorted(set(found) - set(options.classes))
    if unknown:
        raise UserError(
            f"{options.source} holds the class {unknown[0]!r}, which is not among --classes {' '.join(options.classes)}"
        )
    return list(options.classes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedrage_flwr.prepare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    images, table, text = (kinds.add_parser(kind) for kind in ("images", "table", "text"))
    for kind in (images, table, text):
        kind.add_argument("source", type=Path)
        kind.add_argument("target", type=Path)
        kind.add_argument("--classes", nargs="+", help="all classes of the federation, in order")
        kind.add_argument("--mean", nargs="+", type=float, default=[0.5] if kind is images else [0.0])
        kind.add_argument("--std", nargs="+", type=float, default=[0.5] if kind is images else [1.0])
    images.add_argument("--size", nargs=2, type=int, required=True, metavar=("HEIGHT", "WIDTH"))
    images.add_argument("--grey", action="store_true", help="one channel instead of three")
    for kind in (table, text):
        kind.add_argument("--client", help="the column that says whose a row is: a simulation with these clients")
    table.add_argument("--label", required=True, help="the column of the classes")
    table.add_argument("--columns", nargs="+", help="the columns of the inputs, in order; else all but the label")
    text.add_argument("--label", required=True, help="the column of the classes")
    text.add_argument("--text", required=True, help="the column of the texts")
    text.add_argument("--dimension", type=int, default=2048, help="counters that words are hashed into")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
