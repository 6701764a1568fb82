"""The HTML page of a report: a single file without external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from graphtheta.base.console import amount, figure
from graphtheta.inspect.reports import chart
from graphtheta.inspect.reports.profile import LISTED, Profile
from graphtheta.inspect.reports.run import Run
from graphtheta.run.job.job import Job, flag
from graphtheta.tasks.evaluation.evaluate import SPLITS
from graphtheta.tasks.kinds.class_report import COLUMNS, ClassReport
from graphtheta.train.reuse.staleness.audit import AUDIT

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
STYLE = """
body {
  font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #fff;
  max-width: 1060px; margin: 2.2em auto; padding: 0 1.2em;
}
h1 { font-size: 1.7em; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2em; margin: 2.2em 0 .5em; }
.lead { color: #52606d; margin: .2em 0 1.4em; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .8em; margin: 1.2em 0; }
.tile { border: 1px solid #e1e5ea; border-radius: 6px; padding: .45em .9em; min-width: 7em; }
.tile b { display: block; font-size: 1.35em; font-weight: 600; }
.tile span { color: #52606d; font-size: .87em; }
.wide { overflow-x: auto; } svg { width: 100%; min-width: 620px; height: auto; display: block; }
table { border-collapse: collapse; margin: .8em 0; font-variant-numeric: tabular-nums; }
th, td {
  padding: .28em .8em; text-align: right; white-space: nowrap; border-bottom: 1px solid #e9edf1;
}
th { font-weight: 600; color: #52606d; } th:first-child, td:first-child { text-align: left; }
.heat { font-size: .87em; }
.heat td { border: 1px solid #fff; min-width: 2.8em; padding: .3em .6em; }
.heat tbody th { text-align: left; }
.keys td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.note { color: #52606d; }
.chosen { font-weight: 600; }
.swatch {
  display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .5em;
}
details { margin-top: .6em; } summary { cursor: pointer; color: #52606d; }
@media print { body { margin: 0; max-width: none; } }
"""


def page(run: Run) -> str:
    """The whole page.

    Args:
        run: The run to report on.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    job = run.job
    profile = run.profile
    ranks = "" if profile is None else f", {profile.ranks} worker{'s' * (profile.ranks > 1)}"
    lead = f"{job.model} on {job.dataset}, strategy {job.strategy}{ranks}"
    parts = [
        f"<h1>{escape(str(run.folder))}</h1>",
        f'<p class="lead">{escape(lead)}</p>',
        *_outcome(run),
        *_classes(run.classes),
    ]
    if run.rows and any(key.startswith(AUDIT) for key in run.rows[0]):
        parts += [
            "<h2>Audit</h2>",
            _note(
                "Errors of reused values against an exact pass, at the last audit before the end of"
                " each epoch."
            ),
            _picture(chart.audits(run.rows)),
        ]
    if profile is None:
        parts.append(
            _note(
                "There is no profile.json: the run did not finish, or an earlier version wrote it. "
                "Figures of time, traffic and memory are not available."
            )
        )
    else:
        parts += [*_time(profile), *_bytes(profile), *_memory(profile)]
    parts += [*_timeline(run), *_job(job)]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator"'
        ' content="graphtheta">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(str(run.folder))}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _outcome(run: Run) -> list[str]:
    """The main figures and the learning curve."""
    if not run.rows:
        return [_note("No epoch was run.")]
    # without a result, show the last epoch
    last = run.rows[-1]
    best = int(last["epoch"] if run.result is None else run.result["best_epoch"])
    row = next((r for r in run.rows if r["epoch"] == best), last)
    tiles = [
        ("epochs", last["epoch"]),
        ("steps", last["step"]),
        ("best epoch" if run.result else "last epoch", best),
    ]
    tiles += (
        [(f"seconds of training, {last['epoch']} epochs", run.result["seconds"])]
        if run.result
        else []
    )
    splits = [split for split in SPLITS if f"{split}_loss" in row]
    names = list(
        dict.fromkeys(
            key.partition("_")[2]
            for key in row
            if key.startswith(tuple(f"{split}_" for split in SPLITS))
        )
    )
    scores = [
        (name.replace("_", " "), *(figure(row.get(f"{split}_{name}", "")) for split in splits))
        for name in names
    ]
    return [
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{escape(figure(v))}</b><span>{escape(n)}</span></div>'
            for n, v in tiles
        )
        + "</div>",
        "<h2>Learning curve</h2>",
        _picture(chart.curves(run.rows, best)),
        _table((f"epoch {best}", *splits), scores),
    ]


def _classes(report: ClassReport | None) -> list[str]:
    """A table of each class for each split, the last one open."""
    if report is None or not report.splits:
        return []
    *others, last = report.splits
    text = ""
    if report.positive:
        text += (
            f" F1, AUC and average precision are those of the positive class, {report.positive}."
        )
    if report.thresholds:
        text += f" Thresholds: {', '.join(map(figure, report.thresholds))}."
    tables = {
        split: _table((f"{split}: class", *COLUMNS), report.rows(split)) for split in report.splits
    }
    return [
        "<h2>Classes</h2>",
        _note(f"Of the best model. Support is the number of rows of a class.{text}"),
        tables[last],
        *(
            f"<details><summary>{escape(split)}</summary>{tables[split]}</details>"
            for split in others
        ),
    ]


def _time(profile: Profile) -> list[str]:
    rows = [
        _stage_row(profile, stage)
        for stage, book in profile.stages.items()
        if any(book.seconds) or any(book.wait)
    ]
    first = (
        "without those up to the first evaluation" if profile.first_left_out else "with the first"
    )
    slow = [f'<p class="chosen">{escape(text)}</p>' for text in profile.fallbacks]
    return [
        "<h2>Time per stage and worker</h2>",
        f"<p>{escape(slowest(profile))}</p>",
        *slow,
        _picture(chart.time_bars(profile)),
        _table(
            ("stage", "mean ms", "slowest ms", "waiting ms", "imbalance", "sent", "messages"),
            rows,
            trusted_first=True,
        ),
        _note(
            f"Times are per epoch, averaged over {profile.epochs} epochs, {first}. Mean and slowest"
            " are over workers and include waiting; imbalance is the busy time of the busiest"
            " worker divided by the mean, without waiting: 1 is balanced. Sent and messages are"
            " summed over workers. Work between stages (loss, optimiser, log) is listed under"
            " other."
        ),
    ]


def _stage_row(profile: Profile, stage: str) -> tuple[str, ...]:
    book = profile.stages[stage]
    busy = 1e3 * np.array(book.seconds) / profile.epochs
    wait = 1e3 * np.array(book.wait) / profile.epochs
    both = busy + wait
    swatch = (
        '<span class="swatch"'
        f' style="background:{chart.COLOURS.get(stage, "#888888")}"></span>{escape(stage)}'
    )
    return (
        swatch,
        *(f"{x:.2f}" for x in (both.mean(), both.max(), wait.mean())),
        f"{imbalance(book.seconds):.2f}",
        amount(sum(book.bytes) / profile.epochs),
        figure(round(sum(book.messages) / profile.epochs)),
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


def _bytes(profile: Profile) -> list[str]:
    if profile.ranks == 1:
        return ["<h2>Bytes between workers</h2>", _note("A run on one worker has no traffic.")]
    sent, messages = np.array(profile.sent).T / profile.epochs
    note = _note(
        f"{figure(round(float(messages.sum())))} messages to other workers in an epoch,"
        f" {amount(float(sent.sum()))}. Reductions over all workers (losses, metrics) are not"
        " included; the table above includes them."
    )
    # a rank lists all receivers if there are few
    shown = _all_pairs if profile.ranks <= LISTED + 1 else _largest
    return ["<h2>Bytes between workers</h2>", *shown(profile, sent), note]


def _all_pairs(profile: Profile, sent: np.ndarray) -> list[str]:
    """A table of all pairs; ``sent`` has the bytes of each rank in an epoch."""
    pairs = np.zeros((profile.ranks, profile.ranks, 2))
    for sender, receiver, *counts in profile.largest:
        pairs[sender, receiver] = np.array(counts) / profile.epochs
    peak = max(float(pairs[..., 0].max()), 1.0)
    unit = amount(peak).split()[1]
    size = UNITS[unit]
    lines = []
    for q, row in enumerate(pairs):
        cells = "".join(
            f'<td style="{_heat(x / peak)}" title="{x:,.0f} bytes, {n:,.0f} messages">'
            f"{_short(x / size) if x else '&middot;'}</td>"
            for x, n in row
        )
        lines.append(f"<tr><th>rank {q}</th>{cells}<td>{_short(sent[q] / size)}</td></tr>")
    head = "".join(f"<th>to {q}</th>" for q in range(len(pairs)))
    received = "".join(
        f"<td>{_short(x / size)}</td>" for x in (*pairs[..., 0].sum(axis=0), sent.sum())
    )
    return [
        '<div class="wide"><table class="heat">'
        f"<thead><tr><th>{unit}</th>{head}<th>sent</th></tr></thead><tbody>"
        f"{''.join(lines)}"
        f"<tr><th>received</th>{received}</tr></tbody></table></div>"
    ]


def _largest(profile: Profile, sent: np.ndarray) -> list[str]:
    """The ranks that send most, and the largest pairs; arguments as for ``_all_pairs``."""
    ranks = [
        (f"rank {q}", amount(sent[q]), f"{sent[q] / max(sent.mean(), 1.0):.2f}")
        for q in np.argsort(-sent, kind="stable")[:LISTED]
    ]
    most = sorted(profile.largest, key=lambda pair: -pair[2])[: 2 * LISTED]
    rows = [
        (
            f"rank {a}",
            f"rank {b}",
            amount(n_bytes / profile.epochs),
            figure(round(n / profile.epochs)),
        )
        for a, b, n_bytes, n in most
    ]
    return [
        _table(("worker", "sent in an epoch", "over the mean"), ranks),
        _table(("from", "to", "sent in an epoch", "messages"), rows),
    ]


def _short(x: float) -> str:
    return f"{x:.1f}" if x < 100 else f"{x:,.0f}"


def _heat(share: float) -> str:
    """Background from white to blue, and text that can be read on it."""
    shade = [round(255 - share * (255 - c)) for c in (31, 93, 160)]
    return (
        f"background:rgb({','.join(map(str, shade))});color:{'#fff' if share > 0.75 else '#1f2933'}"
    )


def _memory(profile: Profile) -> list[str]:
    pairs = list(zip(profile.predicted, profile.measured, strict=True))
    rows = [
        (f"rank {rank}", amount(p), amount(m), f"{100 * m / max(p, 1):.0f} %")
        for rank, (p, m) in enumerate(pairs)
    ]
    over = sum(m > p for p, m in pairs)
    text = (
        f"{over} of {profile.ranks} workers used more memory than predicted."
        if over
        else "Every worker stayed within the prediction."
    )
    return [
        "<h2>Memory</h2>",
        f"<p>{text}</p>",
        _picture(chart.memory_bars(profile)),
        _table(("worker", "predicted at most", "measured", "share"), rows),
        _note(
            "Peak memory of each process, including libraries and the loading of the graph; the"
            " prediction is made before training."
        ),
    ]


def _timeline(run: Run) -> list[str]:
    names = ", ".join(run.traces)
    text = (
        f"{names}: open it in ui.perfetto.dev or in chrome://tracing."
        if run.traces
        else (
            "No timeline was recorded; train with --trace to record the stages, waits, messages and"
            " work items of every worker."
        )
    )
    return ["<h2>Timeline</h2>", _note(text)]


def _job(job: Job) -> list[str]:
    changed = [key for _, keys in job.sections() for key in keys if not job.is_default(key)]
    flags = " ".join(as_flag(job, key) for key in changed) or "the default job"
    rows = [
        (title, key, job.as_text(key), "chosen" if key in changed else "")
        for title, keys in job.sections()
        for key in keys
    ]
    lines = "".join(
        f'<tr class="{mark}">{_cells((section, key, value))}</tr>'
        for section, key, value, mark in rows
    )
    return [
        "<h2>Job</h2>",
        f"<p><code>{escape(flags)}</code></p>",
        (
            "<details><summary>all keys</summary><table"
            f' class="keys"><tbody>{lines}</tbody></table></details>'
        ),
    ]


def as_flag(job: Job, key: str) -> str:
    """A key as it is given on the command line."""
    value = getattr(job, key)
    return (
        (flag(key) if value else f"--no-{flag(key)[2:]}")
        if isinstance(value, bool)
        else f"{flag(key)} {job.as_text(key)}"
    )


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _picture(svg: str) -> str:
    return f'<div class="wide">{svg}</div>'


def _cells(row: Iterable[Any]) -> str:
    return "".join(f"<td>{escape(str(cell))}</td>" for cell in row)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], trusted_first: bool = False) -> str:
    """A table that scrolls if it is wider than the page; ``trusted_first`` says that the first
    cells are HTML already.
    """
    body = "".join(
        (
            f"<tr><td>{row[0]}</td>{_cells(row[1:])}</tr>"
            if trusted_first
            else f"<tr>{_cells(row)}</tr>"
        )
        for row in rows
    )
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return (
        "<div"
        f' class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
    )
