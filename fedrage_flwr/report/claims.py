"""The papers' claims against our runs: ``results/claims.yaml`` read, each claim checked, and the page of verdicts.

A claim names a check of ``fedrage_flwr.report.checks`` and what it is to be done with. The rules:

- *agrees* / *differs*: the paper's mean lies inside / outside our 95 % t-interval over seeds; for an order of two methods, the
  95 % interval of the paired difference lies wholly on the claimed side / on the other; for arithmetic, it is so or not.
- *undecided*: that interval holds zero. *not testable here*: no interval (one seed), or no number to compare with.
- *not run yet*: no data; the command is given.

The papers' numbers come without their own runs, so that only our uncertainty is in the interval: with few seeds it is wide, and
agreeing is then a weak statement.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedrage_flwr.errors import UserError
from fedrage_flwr.report.cells import REGIMES
from fedrage_flwr.report.checks import CHECKS, Results
from fedrage_flwr.report.finding import NOT_RUN, VERDICTS, Finding


@dataclass(frozen=True)
class Claim:
    """One row of the page."""

    experiment: str
    source: str
    text: str
    paper: str
    command: str
    check: str
    options: Mapping[str, Any]
    why: str


def read_claims(path: Path) -> list[Claim]:
    """Read the claims; one with ``each`` stands for a row for every combination of the values there.

    Raises:
        UserError: the file is not there, or an entry is not one.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; it holds the papers' claims")
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        return [claim for entry in content for claim in _expand(entry)]
    except (OmegaConfBaseException, TypeError, KeyError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read as claims ({type(error).__name__}: {error})") from error


def _expand(entry: Mapping[str, Any]) -> Iterable[Claim]:
    each: Mapping[str, list[Any]] = entry.get("each", {})
    if entry["check"] not in CHECKS:
        raise ValueError(f"check: {entry['check']} is none of {', '.join(CHECKS)}")
    for values in product(*each.values()):
        variables = dict(zip(each, values, strict=True))
        variables["regime"] = REGIMES.get(str(variables.get("ram")), "")
        yield Claim(
            experiment=entry["experiment"],
            source=entry["source"],
            text=entry["claim"].format(**variables),
            paper=str(entry.get("paper", "")),
            command=entry["command"].format(**variables),
            check=entry["check"],
            options=_filled(entry.get("with", {}), variables),
            why=entry.get("why", ""),
        )


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    """Values for the names in braces, in whatever holds them; a name alone keeps the type of its value."""
    if isinstance(value, Mapping):
        return {key: _filled(entry, variables) for key, entry in value.items()}
    if isinstance(value, list):
        return [_filled(entry, variables) for entry in value]
    if isinstance(value, str) and value[1:-1] in variables and value == f"{{{value[1:-1]}}}":
        return variables[value[1:-1]]
    return value


def judge(claim: Claim, results: Results) -> Finding:
    """Check one claim."""
    return CHECKS[claim.check](results, **claim.options)


def page(claims: Sequence[Claim], results: Results) -> str:
    """The page of verdicts, in Markdown."""
    findings = [(claim, judge(claim, results)) for claim in claims]
    counts = {verdict: sum(finding.verdict == verdict for _, finding in findings) for verdict in VERDICTS}
    lines = [
        "# The papers' claims, one by one", "",
        "Made by `make results` from [claims.yaml](claims.yaml) and the recorded runs in this folder; `make results-check` makes"
        " it anew and fails on a difference.", "",
        ", ".join(f"{verdict}: {count}" for verdict, count in counts.items()) + ".", "",
        "Rules:", "",
        "- **agrees** / **differs**: the paper's mean lies inside / outside our 95 % t-interval over seeds. For an order of two"
        " methods: the 95 % interval of the difference, paired by seed, lies on the claimed side / on the other. For arithmetic:"
        " it is so or not.",
        "- **undecided**: that interval holds zero (or the margin named). **not testable here**: no interval, or no number to"
        " compare with. **not run yet**: no data; the command of the section makes them.",
        "- Intervals are of single claims, without correction for their number. They hold our uncertainty alone: with few seeds"
        " they are wide, and agreeing is then a weak statement.", "",
    ]  # fmt: skip
    sections = {
        name: [pair for pair in findings if pair[0].experiment == name]
        for name in dict.fromkeys(c.experiment for c in claims)
    }
    for name, rows in sections.items():
        lines += [f"## {name}", ""]
        if (results.root / name / "report").is_dir():
            lines += [f"Tables: [{name}/report/tables]({name}/report/tables).", ""]
        commands = dict.fromkeys(claim.command for claim, _ in rows)
        lines += [*(f"    {command}" for command in commands), ""]
        lines += ["| claim | source | paper | ours | verdict | why |", "| --- | --- | --- | --- | --- | --- |"]
        for claim, finding in rows:
            ours = "" if finding.verdict == NOT_RUN else claim.why
            why = ". ".join(part for part in (finding.reason, ours) if part) or "—"
            cells = [
                claim.text,
                claim.source,
                finding.paper or claim.paper or "—",
                finding.ours,
                f"**{finding.verdict}**",
                why,
            ]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)
