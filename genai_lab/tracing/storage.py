"""A recording as one npz file, and back. Versioned, never pickled; a broken or newer file is a clear error.

The file holds one array per column (`tokens.prob`, ...), the prompts as one array, and a JSON header as bytes.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import TraceFileError
from genai_lab.paths import checked_path, whole_file
from genai_lab.tracing.digest import CANDIDATES
from genai_lab.tracing.recording import TABLES, Columns, Recording, RunFacts, empty_tables
from genai_lab.tracing.speculation_facts import LIMITS, Origin

FORMAT = "genai_lab.trace"
VERSION = 2  # 2: texts of runs, bytes of tokens that are not whole characters
WORD_COLUMNS = {
    "decisions": ("verdict", "reason", "template"),
    "operands": ("name",),
    "admissions": ("template",),
    "admission_operands": ("name",),
    "pool": ("event", "policy"),
    "turns": ("status", "finish"),
}
LATER_COLUMNS: dict[str, tuple[str, float]] = {
    "tokens.exact": ("<u1", CANDIDATES),
    "tokens.allowed": ("<u4", 0),
    "tokens.allowed_mass": ("<f4", math.nan),
    "tokens.forced": ("<u1", 0),
    "tokens.origin": ("<u1", 0),
}
"""Columns that older files of this version do not have, and what they would hold."""
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,  # a damaged directory may claim any packing
    OSError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    MemoryError,  # sizes that only the damage claims
    OverflowError,
    struct.error,
    SyntaxError,  # numpy reads a column's header as Python ...
    tokenize.TokenError,  # ... and mends it as Python 2's when it cannot
    RuntimeError,  # zipfile's for a file that says it is encrypted; NotImplementedError: a version it does not know
)
"""What zipfile, zlib, json and numpy raise for a damaged file."""
LATEST_MS = 1e15  # thirty thousand years
SHARES = (
    *("tokens.prob", "tokens.entropy", "tokens.final_prob", "tokens.allowed_mass"),
    *("proposals.p_draft", "proposals.p_target", "proposals.drawn"),
)
"""Columns of probabilities and bits."""
MAX_FILE_BYTES = 1 << 30  # of the arrays, unpacked: a bigger claim is refused before anything is allocated


def save_recording(recording: Recording, path: str | os.PathLike[str]) -> Path:
    """Write `recording` to `path` (npz, compressed). An interrupted save leaves the old file as it was.

    Raises:
        ArgumentError, ArgumentTypeError: not a path.
        OutputError: the file cannot be written; says why.
    """
    target = checked_path(path, "path", "the file to write")
    runs = [asdict(run) for run in recording.runs]
    prompts = [cast("NDArray[np.int32]", run.pop("prompt")) for run in runs]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "runs": runs,
        "texts": [[i, text, int(special)] for i, (text, special) in recording.texts.items()],
        "raw": [[i, data.hex()] for i, data in recording.raw.items()],
        "stage_names": recording.stage_names,
        "processor_names": recording.processor_names,
        "model": recording.model,
        "origin": recording.origin,
        "words": recording.words,
        "dropped": recording.dropped,
    }
    arrays: dict[str, NDArray[Any]] = {
        f"{table}.{name}": column for table, columns in recording.tables.items() for name, column in columns.items()
    }
    arrays["prompts"] = np.concatenate(prompts) if prompts else np.empty(0, np.int32)
    arrays["prompt_lengths"] = np.array([p.size for p in prompts], np.int64)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with whole_file(target) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # numpy's stub names allow_pickle only
    return target


def load_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a file written by `save_recording`.

    Raises:
        TraceFileError: not a trace file, damaged, or written by a newer version.
    """
    source = checked_path(path, "path", "a trace file")
    if os.path.isdir(source):
        raise TraceFileError(f"path {str(source)!r} is a folder; give the file that trace.save() wrote")
    if not os.path.isfile(source):  # Path.is_file raises for a name that is too long
        raise TraceFileError(f"trace file {str(source)!r} does not exist; give the path that trace.save() returned")
    try:
        _check_size(source)
        arrays = _arrays(source)
        header = json.loads(arrays["header"].tobytes())
    except TraceFileError:
        raise
    except _UNREADABLE as error:
        raise TraceFileError(
            f"{str(source)!r} is not a whole genai_lab trace ({error}); record and save it again"
        ) from error
    _check_header(source, header)
    try:
        return _recording(arrays, header)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFileError(f"{str(source)!r} has a damaged part ({error!r}); record and save it again") from error


def _arrays(source: Path) -> dict[str, NDArray[Any]]:
    with warnings.catch_warnings(), np.load(source, allow_pickle=False) as file:
        warnings.simplefilter("ignore", UserWarning)  # of a header that numpy had to mend: the checksum tells better
        return {name: file[name] for name in file.files}


def _check_size(source: Path) -> None:
    with zipfile.ZipFile(source) as archive:
        claimed = sum(member.file_size for member in archive.infolist())
    if claimed > MAX_FILE_BYTES:
        raise TraceFileError(
            f"{str(source)!r} would unpack to {claimed:,} bytes; at most {MAX_FILE_BYTES:,} are read. Record "
            f"fewer tokens "
            "into one trace (record(max_tokens=...))"
        )


def _check_header(source: Path, header: Any) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise TraceFileError(f"{str(source)!r} is an npz file but not a genai_lab trace")
    version = header.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise TraceFileError(
            f"{str(source)!r} has trace format {version!r}; this version reads up to {VERSION}. Upgrade "
            f"genai_lab to open it"
        )


def _recording(arrays: dict[str, NDArray[Any]], header: dict[str, Any]) -> Recording:
    lengths = arrays["prompt_lengths"]
    prompts = np.split(arrays["prompts"].astype(np.int32), np.cumsum(lengths)[:-1]) if lengths.size else []
    runs = [RunFacts(prompt=prompt, **facts) for prompt, facts in zip(prompts, header["runs"], strict=True)]
    for run in runs:
        _check_numbers("runs.start_ms", np.array([run.start_ms], np.float64), may_be_nan=False)
    recording = Recording(
        tables={table: _read_table(arrays, table) for table in TABLES},
        runs=runs,
        texts={int(i): (str(text), bool(special)) for i, text, special in header["texts"]},
        raw={int(i): bytes.fromhex(data) for i, data in header.get("raw", [])},
        stage_names=[str(name) for name in header["stage_names"]],
        processor_names=[str(name) for name in header["processor_names"]],
        model=dict(header["model"]),
        origin=dict(header["origin"]),
        words=[str(word) for word in header["words"]],
        dropped={str(k): int(v) for k, v in header["dropped"].items()},
    )
    _check_references(recording)
    return recording


def _read_table(arrays: dict[str, NDArray[Any]], table: str) -> Columns:
    columns: Columns = {}
    rows = None
    if not any(name.startswith(f"{table}.") for name in arrays):
        return empty_tables()[table]  # a file from before there was this table
    for name, (dtype, shape) in TABLES[table].items():
        column = _column(arrays, f"{table}.{name}", rows)
        if column.dtype != np.dtype(dtype) or column.shape[1:] != shape:
            raise ValueError(
                f"{table}.{name} is {column.dtype}{list(column.shape)}, expected {dtype}[n, {list(shape)}]"
            )
        if rows is not None and len(column) != rows:
            raise ValueError(f"{table}.{name} has {len(column)} rows, the others {rows}")
        rows = len(column)
        _check_numbers(f"{table}.{name}", column, may_be_nan=table == "turns")
        columns[name] = column
    return columns


def _check_numbers(name: str, column: NDArray[Any], *, may_be_nan: bool) -> None:
    """Times are numbers that can be added up, probabilities are finite or unknown (NaN); what has not come yet in a
    turn is NaN, too."""
    if name.endswith("_ms"):
        known = column[~np.isnan(column)] if may_be_nan else column
        if not bool(np.all(np.abs(known) <= LATEST_MS)):
            kinds = "NaN or a time" if may_be_nan else "a time"
            raise ValueError(f"{name} is {_worst(known)}, where {kinds} in ms is expected, within {LATEST_MS:.0e}")
    elif name in SHARES and bool(np.any(np.isinf(column))):
        raise ValueError(f"{name} is infinite, where a finite number or NaN is expected")


def _worst(times: NDArray[np.float64]) -> float:
    wrong = times[~(np.abs(times) <= LATEST_MS)]
    return float(wrong[0])


def _column(arrays: dict[str, NDArray[Any]], name: str, rows: int | None) -> NDArray[Any]:
    """A column; one that came later, as it would have been, for a file from before."""
    if name in arrays or name not in LATER_COLUMNS:
        return arrays[name]
    dtype, value = LATER_COLUMNS[name]
    return np.full(rows or 0, value, dtype)


def _check_references(recording: Recording) -> None:
    """Indices of one table into another must exist, or a reader would fail far from the file."""
    limits = (
        ("tokens.run", recording.tokens["run"], len(recording.runs)),
        ("tokens.origin", recording.tokens["origin"], len(Origin)),
        ("stages.run", recording.stages["run"], len(recording.runs)),
        ("stages.stage", recording.stages["stage"], len(recording.stage_names)),
        ("changed.by", recording.tables["changed"]["by"], len(recording.processor_names)),
        ("operands.decision", recording.tables["operands"]["decision"], len(recording.tables["decisions"]["step"])),
        (
            "admission_operands.admission",
            recording.tables["admission_operands"]["admission"],
            len(recording.tables["admissions"]["step"]),
        ),
        ("rounds.run", recording.tables["rounds"]["run"], len(recording.runs)),
        ("proposals.row", recording.tables["proposals"]["row"], len(recording.tables["rounds"]["run"])),
        *((name, recording.tables[name.split(".")[0]][name.split(".")[1]], limit) for name, limit in LIMITS.items()),
        *(
            (f"{table}.{name}", recording.tables[table][name], len(recording.words))
            for table, names in WORD_COLUMNS.items()
            for name in names
        ),
    )
    for name, column, limit in limits:
        if column.size and int(column.max()) >= limit:
            raise ValueError(f"{name} refers to {int(column.max())} of {limit}")
