"""The commands ``datasets`` and ``download``: the named data sets, and how to get them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from graphtheta.base.console import amount, figure, pairs, say, table
from graphtheta.base.strict_json import to_json
from graphtheta.engine.runtime.start import launched
from graphtheta.graph.datasets.dataset import ENTRIES, data_dirs
from graphtheta.graph.datasets.download import ELSEWHERE, Downloaded, file_of, obtained, read_record
from graphtheta.graph.datasets.sources import FACTS, GITHUB
from graphtheta.run.job.flag import Parser

FOLDER_HELP = "folder of the named graphs [$GRAPHTHETA_DATA, else one in the user's cache folder]"
UNKNOWN = "unknown"


def parser_of_datasets() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "datasets",
        "List the named data sets, or the files of some of them: size, SHA-256 and public address.",
        "graphtheta datasets cora",
        "[NAME ...] ",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="show the files of these")
    parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")
    parser.add_argument("--data-dir", metavar="FOLDER", help=FOLDER_HELP)
    return parser


def datasets(argv: list[str]) -> int:
    """List the named data sets.

    Args:
        argv: Names and flags.

    Returns:
        Exit code.
    """
    options, _ = parser_of_datasets().read(argv)
    if launched()[0]:
        return 0
    for name in options.names:
        if name not in ENTRIES:
            file_of(name)
    chosen = {name: described(name, options.data_dir) for name in options.names or ENTRIES}
    if options.json:
        say(to_json(list(chosen.values()), indent=1))
    elif options.names:
        say("\n\n".join(details(record) for record in chosen.values()))
    else:
        say(overview(chosen))
    return 0


def parser_of_download() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "download",
        "Get named data sets from their public addresses, or from a mirror or folder, into the data"
        " folder. What is there is compared with its checksum and not received again.",
        "graphtheta download cora",
        "NAME ... ",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="data sets: graphtheta datasets")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="URL_OR_FOLDER",
        help="a mirror or folder that has NAME.npz or the original files [public addresses]",
    )
    parser.add_argument("--data-dir", metavar="FOLDER", help=FOLDER_HELP)
    return parser


def download(argv: list[str]) -> int:
    """Get named data sets into the data folder.

    Args:
        argv: Names and flags.

    Returns:
        Exit code.
    """
    options, _ = parser_of_download().read(argv)
    if launched()[0]:
        return 0
    for name in options.names:
        file_of(name)
    for name in options.names:
        say(outcome(name, obtained(name, data_dir=options.data_dir, source=options.source)))
    return 0


def described(name: str, data_dir: str | None) -> dict[str, Any]:
    """All that is known of a data set, with what its record adds."""
    facts = FACTS[name]
    file = ENTRIES[name].file
    paths = [folder / file for folder in data_dirs(data_dir) if file]
    path = next((path for path in paths if path.is_file()), None)
    record = read_record(path) if path else {}
    earlier = {entry["name"]: entry for entry in record.get("files", [])}
    files = [
        {**asdict(raw), "name": raw.name, "recorded": earlier.get(raw.name)} for raw in facts.files
    ]
    return {
        "name": name,
        "about": ENTRIES[name].about,
        **{key: value for key, value in asdict(facts).items() if key not in ("form", "files")},
        "n_bytes": facts.n_bytes,
        "file": file,
        "path": None if path is None else str(path),
        "sha256": record.get("sha256"),
        "files": files,
    }


def overview(chosen: dict[str, dict[str, Any]]) -> str:
    """A line for each data set."""
    counts = ("nodes", "edges", "features", "classes")
    rows = [
        (
            name,
            *(figure(record[key]) for key in counts),
            record["task"],
            size(record),
            record["licence"],
            checksum(record["files"]),
            "yes" if record["path"] or record["file"] is None else "no",
            place(record["files"]),
        )
        for name, record in chosen.items()
    ]
    header = ("name", *counts, "task", "download", "licence", "SHA-256", "here", "from")
    return (
        table(header, rows)
        + f"\n\ngraphtheta datasets NAME shows addresses and checksums. Those without an address:"
        f" graphtheta download NAME {ELSEWHERE}"
    )


def size(record: dict[str, Any]) -> str:
    """Bytes to download in words."""
    if not record["files"]:
        return "-"
    return UNKNOWN if record["n_bytes"] is None else amount(record["n_bytes"])


def checksum(files: list[dict[str, Any]]) -> str:
    """How much is known of the checksums of some files."""
    missing = sum(not file["sha256"] for file in files)
    if not files:
        return "-"
    if missing:
        return f"{missing} {UNKNOWN}"
    return files[0]["sha256"][:12] if len(files) == 1 else f"of {len(files)} files"


def place(files: list[dict[str, Any]]) -> str:
    """Host of the public address, with owner and name of a repository."""
    if not files:
        return "-"
    address = urlsplit(files[0]["address"])
    if f"https://{address.netloc}" != GITHUB:
        return address.netloc
    return "github.com" + "/".join(address.path.split("/")[:3])


def details(record: dict[str, Any]) -> str:
    """What is known of a data set, and its files."""
    rows = [
        (key, figure(record[key]))
        for key in ("name", "about", "nodes", "edges", "features", "classes", "task", "licence")
    ]
    rows.append(("download", size(record)))
    if record["path"]:
        rows.append(("here", record["path"]))
    if record["sha256"]:
        rows.append(("its SHA-256", record["sha256"]))
    for file in record["files"]:
        told = file["sha256"]
        recorded = file["recorded"]
        if not told and recorded:
            told = f"{recorded['sha256']} (of the first download)"
        many = UNKNOWN if file["n_bytes"] is None else f"{file['n_bytes']:,} bytes"
        rows.append(("file", file["address"]))
        rows.append(("", f"{many}, SHA-256 {told or 'unknown until the first download'}"))
    return pairs(rows)


def outcome(name: str, done: Downloaded) -> str:
    """What a download did."""
    if not done.received:
        how = "has the checksum of its record" if done.recorded else "has no record of a download"
        return f"{name}: {done.path} is there and {how}; nothing was received"
    n_bytes = sum(one.n_bytes for one in done.received)
    many = len(done.received)
    lines = [
        f"{name}: {done.path}, {amount(done.path.stat().st_size)}, from {amount(n_bytes)} in"
        f" {many} {'file' if many == 1 else 'files'}"
    ]
    for one in done.received:
        if one.compared == "nothing":
            lines.append(
                f"{one.name}: no checksum is published; that of this first download is recorded:"
                f" SHA-256 {one.sha256}"
            )
    compared = sum(one.compared != "nothing" for one in done.received)
    if compared:
        lines.append(f"size and SHA-256 of {compared} of {many} are the expected ones")
    return "\n".join(lines)
