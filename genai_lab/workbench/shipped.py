"""Models that are part of this package: a small pair, one of which guesses what the other says, and both in one folder.

Receives a place and a precision. Returns a finished model folder in that place. It does not know where the cache is;
`tiny/README.md` says what the models are made of, and `tools/tiny` makes them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from genai_lab.builder.folder import scratch_folder, whole_folder

FOLDER: Final = Path(__file__).parent / "tiny"
DRAFT_GRAPH: Final = "draft.onnx"


@dataclass(frozen=True)
class Shipped:
    """A GGUF file of the package, and another one for a model that speculates."""

    file: str
    draft_file: str | None = None

    @property
    def path(self) -> Path:
        """Where the file is."""
        return FOLDER / self.file

    def digest(self) -> str:
        """Eight letters that differ when the files do: a folder converted from older ones is not used."""
        digest = hashlib.sha256(self.path.read_bytes())
        if self.draft_file is not None:
            digest.update((FOLDER / self.draft_file).read_bytes())
        return digest.hexdigest()[:8]

    def build(self, place: Path, precision: str) -> Path:
        """Make the folder, or leave it if another process has made it meanwhile."""
        if self.draft_file is None:
            return _build(self.path, place, precision)
        with scratch_folder(place) as scratch, whole_folder(place, keep_existing=True) as folder:
            shutil.copytree(_build(self.path, scratch / "target", precision), folder, dirs_exist_ok=True)
            draft = _build(FOLDER / self.draft_file, scratch / "draft", precision, DRAFT_GRAPH)
            for name in (DRAFT_GRAPH, f"{DRAFT_GRAPH}.data"):
                shutil.copyfile(draft / name, folder / name)
            _add_draft(folder / "genai_config.json", draft / "genai_config.json")
        return place


def _build(checkpoint: Path, place: Path, precision: str, filename: str = "model.onnx") -> Path:
    from genai_lab.builder import build_model  # brings onnx and gguf, which are not needed when a folder is there

    options: dict[str, str | int | bool] = {"filename": filename, "prune_lm_head": False}  # speculation asks for all
    return build_model(checkpoint, place, precision, extra_options=options, keep_existing=True)


def _add_draft(config_file: Path, draft_config_file: Path) -> None:
    """Say in the folder's config that it has a draft."""
    config, draft = (json.loads(file.read_text(encoding="utf-8")) for file in (config_file, draft_config_file))
    config["model"] |= {"type": "speculative", "draft": draft["model"]["decoder"]}
    config_file.write_text(json.dumps(config, indent=4) + "\n", encoding="utf-8")
