"""The HTML page of a report: a single file without external resources.

Its text is in ``page.html``, a template of Jinja2, which escapes all that is inserted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from graphtheta.base.console import amount, figure
from graphtheta.inspect.reports import chart
from graphtheta.inspect.reports.run import RunRecord
from graphtheta.run.job.job import as_flag
from graphtheta.run.log.profile import LISTED, Profile
from graphtheta.tasks.evaluation.evaluate import SPLITS
from graphtheta.tasks.kinds.class_report import COLUMNS
from graphtheta.train.reuse.staleness.audit import AUDIT

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def page(run: RunRecord) -> str:
    """The whole page.

    Args:
        run: The run to report on.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"amount": amount, "figure": figure}
    job = run.job
    changed = [key for _, keys in job.sections() for key in keys if not job.is_default(key)]
    return templates.get_template("page.html").render(
        run=run,
        job=job,
        profile=run.profile,
        chart=chart,
        slowest=slowest,
        class_columns=list(COLUMNS),
        matrix=matrix,
        outcome=_outcome(run),
        audited=bool(run.rows) and any(key.startswith(AUDIT) for key in run.rows[0]),
        flags=" ".join(as_flag(key, getattr(job, key)) for key in changed) or "the default job",
        **({} if run.profile is None else _figures(run.profile)),
    )


def matrix(rows: list[list[int]]) -> list[list[dict[str, str]]]:
    """Cells of a confusion matrix, coloured by their share of the rows of the true class."""
    totals = [max(sum(row), 1) for row in rows]
    return [
        [
            _shaded(n / total, figure(n) if n else "", f"{n / total:.1%} of the true class")
            for n in row
        ]
        for row, total in zip(rows, totals, strict=True)
    ]


def _outcome(run: RunRecord) -> dict[str, Any] | None:
    """The main figures: those of the best epoch, or of the last one without a result."""
    if not run.rows:
        return None
    last = run.rows[-1]
    best = int(last["epoch"] if run.result is None else run.result["best_epoch"])
    row = next((r for r in run.rows if r["epoch"] == best), last)
    tiles = [
        ("epochs", last["epoch"]),
        ("steps", last["step"]),
        ("best epoch" if run.result else "last epoch", best),
    ]
    if run.result:
        tiles.append((f"seconds of training, {last['epoch']} epochs", run.result["seconds"]))
    splits = [split for split in SPLITS if f"{split}_loss" in row]
    names = dict.fromkeys(
        key.partition("_")[2]
        for key in row
        if key.startswith(tuple(f"{split}_" for split in SPLITS))
    )
    scores = [
        (name.replace("_", " "), *(figure(row.get(f"{split}_{name}", "")) for split in splits))
        for name in names
    ]
    return {
        "best": best,
        "curve": chart.Curve(run.rows, best),
        "tiles": tiles,
        "splits": splits,
        "scores": scores,
    }


def _figures(profile: Profile) -> dict[str, Any]:
    """Time, traffic and memory."""
    sent, messages = np.array(profile.sent).T / profile.epochs
    # a rank lists all receivers if there are few
    few = profile.ranks <= LISTED + 1
    return {
        "stages": list(_stages(profile)),
        "listed": LISTED,
        "ranks": [f"rank {rank}" for rank in range(profile.ranks)],
        "sent": float(sent.sum()),
        "messages": round(float(messages.sum())),
        "heat": _all_pairs(profile, sent) if few else None,
        "largest": None if few else _largest(profile, sent),
        "over": sum(m > p for p, m in zip(profile.predicted, profile.measured, strict=True)),
        "memory": [
            (f"rank {rank}", amount(p), amount(m), f"{100 * m / max(p, 1):.0f} %")
            for rank, (p, m) in enumerate(zip(profile.predicted, profile.measured, strict=True))
        ],
    }


def _stages(profile: Profile) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Stages that took time, and the cells of their rows."""
    for stage, book in profile.stages.items():
        if not any(book.seconds) and not any(book.wait):
            continue
        wait = 1e3 * np.array(book.wait) / profile.epochs
        both = 1e3 * np.array(book.seconds) / profile.epochs + wait
        yield (
            stage,
            (
                *(f"{x:.2f}" for x in (both.mean(), both.max(), wait.mean())),
                f"{imbalance(book.seconds):.2f}",
                amount(sum(book.bytes) / profile.epochs),
                figure(round(sum(book.messages) / profile.epochs)),
            ),
        )


def imbalance(seconds: Sequence[float]) -> float:
    """Busy time of the busiest worker over the mean; 1 if all are 0."""
    mean = float(np.mean(seconds))
    return max(seconds) / mean if mean > 0 else 1.0


def slowest(profile: Profile) -> str:
    """Which stage takes the most time, and how much of the time is spent waiting, in words."""
    spent = {
        stage: float(np.mean(np.array(book.seconds) + book.wait))
        for stage, book in profile.stages.items()
    }
    total = sum(spent.values()) or 1.0
    # "other" is time between stages
    stage = max((name for name in spent if name != "other"), key=spent.__getitem__, default="other")
    text = (
        f"The slowest stage is {stage}: {1e3 * spent[stage] / profile.epochs:.2f} ms of the "
        f"{1e3 * total / profile.epochs:.2f} ms of an epoch ({100 * spent[stage] / total:.0f} %)."
    )
    busy = np.sum([book.seconds for book in profile.stages.values()], axis=0)
    if total > 1.1 * profile.elapsed:
        text += (
            " Times of pipelined mini-batches are summed here: an epoch took"
            f" {1e3 * profile.elapsed / profile.epochs:.2f} ms of wall-clock time, of which a"
            f" worker computed {1e3 * float(busy.mean()) / profile.epochs:.2f} ms."
        )
    if profile.ranks == 1:
        return text
    waits = {name: float(np.mean(book.wait)) for name, book in profile.stages.items()}
    most = max(waits, key=waits.__getitem__)
    return (
        f"{text} Waiting is {100 * sum(waits.values()) / total:.0f} % of the time, mostly in"
        f" {most}. The busiest worker, rank {int(busy.argmax())}, works"
        f" {imbalance(busy.tolist()):.2f} times as long as the mean."
    )


def _all_pairs(profile: Profile, sent: np.ndarray) -> dict[str, Any]:
    """A table of all pairs; ``sent`` has the bytes of each rank in an epoch."""
    pairs = np.zeros((profile.ranks, profile.ranks, 2))
    for sender, receiver, *counts in profile.largest:
        pairs[sender, receiver] = np.array(counts) / profile.epochs
    peak = max(float(pairs[..., 0].max()), 1.0)
    unit = amount(peak).split()[1]
    size = UNITS[unit]
    return {
        "unit": unit,
        "rows": [
            ([_cell(x, n, x / peak, size) for x, n in row], _short(sent[q] / size))
            for q, row in enumerate(pairs)
        ],
        "received": [_short(x / size) for x in (*pairs[..., 0].sum(axis=0), sent.sum())],
    }


def _cell(n_bytes: float, messages: float, share: float, size: int) -> dict[str, str]:
    """A cell of that table."""
    title = f"{n_bytes:,.0f} bytes, {messages:,.0f} messages"
    return _shaded(share, _short(n_bytes / size) if n_bytes else "", title)


def _shaded(share: float, value: str, title: str) -> dict[str, str]:
    """A cell: its background from white to blue by a share, and text that can be read on it."""
    shade = [round(255 - share * (255 - c)) for c in (31, 93, 160)]
    return {
        "shade": ",".join(map(str, shade)),
        "text": "#fff" if share > 0.75 else "#1f2933",
        "title": title,
        "value": value,
    }


def _largest(profile: Profile, sent: np.ndarray) -> dict[str, Any]:
    """What the busiest ranks send, and the largest pairs; arguments as for ``_all_pairs``."""
    most = sorted(profile.largest, key=lambda pair: -pair[2])[: 2 * LISTED]
    return {
        "ranks": [
            (f"rank {q}", amount(sent[q]), f"{sent[q] / max(sent.mean(), 1.0):.2f}")
            for q in np.argsort(-sent, kind="stable")[:LISTED]
        ],
        "pairs": [
            (
                f"rank {a}",
                f"rank {b}",
                amount(n_bytes / profile.epochs),
                figure(round(n / profile.epochs)),
            )
            for a, b, n_bytes, n in most
        ],
    }


def _short(x: float) -> str:
    return f"{x:.1f}" if x < 100 else f"{x:,.0f}"
