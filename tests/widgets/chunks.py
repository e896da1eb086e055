"""Reads chunks back, as the browser does: the other half of the codec, for tests only."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def decode(chunk: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and columns by name."""
    raw = zlib.decompress(chunk)
    length = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + length].decode("utf-8"), parse_constant=_refuse)
    base = -(-(4 + length) // 8) * 8
    columns = {}
    for column in header["columns"]:
        assert column["offset"] % 8 == 0
        count = int(np.prod(column["shape"]))
        data = np.frombuffer(raw, "<" + column["dtype"], count, base + column["offset"])
        columns[column["name"]] = data.reshape(column["shape"])
    return header, columns


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON: a browser refuses it")


class Reader:
    """Puts chunks together by the protocol's rules, as the browser's store does."""

    def __init__(self) -> None:
        self.columns: dict[str, NDArray[Any]] = {}
        self.runs: dict[int, dict[str, Any]] = {}
        self.texts: dict[int, tuple[str, int]] = {}
        self.turns: dict[tuple[int, int], dict[str, Any]] = {}
        self.prompts: dict[int, list[int]] = {}
        self.words: list[str] = []
        self.header: dict[str, Any] = {}
        self.gaps = 0

    def take(self, chunk: bytes) -> Reader:
        header, columns = decode(chunk)
        for name, column in columns.items():
            first, have = header["first"][name.split(".")[0]], len(self.columns.get(name, ()))
            if first > have:
                self.gaps += 1
                return self
            new = column[have - first :]
            self.columns[name] = np.concatenate([self.columns[name], new]) if have else new
        self.header = header
        self.words = header.get("words", self.words)
        self.turns |= {(turn["request"], turn["turn"]): turn for turn in header.get("turns", ())}
        self.prompts |= dict(header.get("prompts", ()))
        self.runs |= {run["run"]: run for run in header["runs"]}
        self.texts |= {entry[0]: (entry[1], entry[2]) for entry in header["texts"]}
        return self
