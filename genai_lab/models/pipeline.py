"""A decoder in stages: several graphs run one after another, and what one gives the next ones take by name.

genai_config.json lists them in model.decoder.pipeline: which inputs and outputs of a file take part, whether the stage
runs over the prompt, over generated tokens, or both, under which other name an output is handed on
(output_names_forwarder), whether only the logits of the last position matter to it (is_lm_head), and which stage's
memory it frees before it runs (reset_session_idx). To a running decoder the stages are one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import onnxruntime as ort

from genai_lab.config import Config
from genai_lab.config.session_options import SessionOptions
from genai_lab.errors import ModelFolderError, StateError
from genai_lab.models.session import NO_WEIGHTS, Arrays, Session, TensorInfo, Weights, open_session


@dataclass(slots=True)
class Stage:
    """One file of the pipeline.

    Args:
        name, section: as genai_config.json has them.
        open: loads the file; again after another stage freed it.
        options: run options of its own, None for those of the generator.
    """

    name: str
    section: Mapping[str, Any]
    open: Callable[[], Session]
    session: Session | None
    inputs: Mapping[str, TensorInfo]  # of the file, those that take part
    outputs: Mapping[str, TensorInfo]
    wanted: tuple[str, ...]  # every input of the file, whether it takes part or not
    preset: Collection[str]  # of the file: inputs that have a value of their own
    options: ort.RunOptions | None

    def runs(self, is_prompt: bool) -> bool:
        """Whether it runs over a prompt, or over a generated token."""
        return bool(self.section.get("run_on_prompt" if is_prompt else "run_on_token_gen", True))

    def forwarded(self, output: str) -> str:
        """Under which name an output is handed on."""
        name: str = self.section.get("output_names_forwarder", {}).get(output, output)
        return name

    @property
    def words(self) -> str:
        """What it is called in errors."""
        return f"stage {self.name!r} ({self.section['filename']!r})"

    def run(self, known: Arrays, options: ort.RunOptions | None, weights: Weights) -> Arrays:
        """Its outputs that take part.

        Raises:
            StateError: an input is missing.
        """
        if self.session is None:
            self.session = self.open()
        missing = [name for name in self.wanted if name not in self.inputs or name not in known]
        if missing:
            raise StateError(
                f"Missing Input: {missing[0]}. {self.words} wants it: no stage before it gives it and it does not "
                "follow from the tokens. Name it in the stage's inputs and in the outputs of the one that makes it "
                "(genai_config.json, model.decoder.pipeline), or give it by generator.set_model_input"
            )
        names = list(self.outputs)
        feeds: dict[str, Any] = {name: info.wanted(known[name]) for name, info in self.inputs.items()}
        feeds |= self.session.own_weights(weights)
        return dict(zip(names, self.session.inference.run(names, feeds, self.options or options), strict=True))


class Stages:
    """The stages of a model as one graph.

    Args:
        stages: in their order.
        managed: inputs that a running decoder gives, whichever stage has an output of the same name.
    """

    def __init__(self, stages: list[Stage], managed: Collection[str]) -> None:
        self._stages, self._managed = stages, managed
        self._handed: Arrays = {}  # what stages gave and others may take, in this run or a later one
        made = {stage.forwarded(output) for stage in stages for output in stage.outputs} - set(managed)
        self.inputs: Mapping[str, TensorInfo] = {
            name: info for stage in stages for name, info in stage.inputs.items() if name not in made
        }
        self.outputs: Mapping[str, TensorInfo] = {
            name: info for stage in stages for name, info in stage.outputs.items()
        }
        self.preset: Collection[str] = {name for stage in stages for name in stage.preset}
        self.filename = ", ".join(dict.fromkeys(stage.section["filename"] for stage in stages))
        sessions = [stage.session for stage in stages if stage.session is not None]
        self.name, self.threads = sessions[-1].name, max(session.threads for session in sessions)

    def rank(self, name: str) -> int:
        """How many axes an input has."""
        return len(self.inputs[name].shape)

    def owner(self, name: str) -> str:
        """Which stage wants an input, for errors."""
        return next(stage.words for stage in self._stages if name in stage.inputs)

    def begin(self) -> Stages:
        """One generator's: what is handed on is its own, the files are everyone's."""
        return Stages(self._stages, self._managed)

    def run(
        self,
        feeds: Arrays,
        options: ort.RunOptions | None,
        /,
        *,
        is_prompt: bool = True,
        needs_logits: bool = True,
        weights: Weights = NO_WEIGHTS,
    ) -> Arrays:
        """Every output of the stages that run. What a stage gave that does not run now is still handed on."""
        outputs: Arrays = {}
        for stage in self._stages:
            if not stage.runs(is_prompt) or (stage.section.get("is_lm_head") and is_prompt and not needs_logits):
                continue
            self._free_before(stage)
            changed = {name: value for name, value in outputs.items() if name in self._managed}
            given = stage.run(self._handed | feeds | changed, options, weights)
            self._handed |= {stage.forwarded(name): value for name, value in given.items()}
            outputs |= given
        return outputs

    def _free_before(self, stage: Stage) -> None:
        freed = stage.section.get("reset_session_idx", -1)
        if freed >= len(self._stages):
            raise StateError(
                f"Invalid reset_session_idx {freed} for pipeline model {stage.name}: there are {len(self._stages)} "
                f"stages, 0 to {len(self._stages) - 1} are allowed (-1: none)"
            )
        if freed >= 0:
            self._stages[freed].session = None


def open_stages(config: Config, managed: Collection[str]) -> Stages:
    """Load the files of model.decoder.pipeline.

    Raises:
        ModelFolderError: a file is missing or damaged, or has no such output.
    """
    return Stages([_open_stage(config, section) for section in config.model.decoder.pipeline], managed)


def _open_stage(config: Config, section: Mapping[str, Any]) -> Stage:
    name = section["model_id"]
    place = f"model.decoder.pipeline[...].{name}"
    if not section.get("filename"):
        raise ModelFolderError(
            f"genai_config.json of {str(config.folder)!r}: {place}.filename is missing; every stage needs its file"
        )

    def load() -> Session:
        return open_session(config, section["filename"], _options(config, section), f"{place}.filename")

    session = load()
    inputs = {key: session.inputs[key] for key in section.get("inputs", ()) if key in session.inputs}
    outputs = {key: session.outputs[key] for key in section.get("outputs", ()) if key in session.outputs}
    for key in section.get("outputs", ()):
        if key not in session.outputs:
            raise ModelFolderError(
                f"{section['filename']!r} has no output {key!r}, which genai_config.json names in {place}.outputs; it "
                f"has {', '.join(session.outputs)}"
            )
    options = None
    if section.get("run_options"):
        options = ort.RunOptions()
        for key, value in section["run_options"].items():
            options.add_run_config_entry(key, value)
    return Stage(name, section, load, session, inputs, outputs, tuple(session.inputs), session.preset, options)


def _options(config: Config, section: Mapping[str, Any]) -> SessionOptions | None:
    """Session options of a stage: its own, on top of the decoder's if it says so; None for the decoder's."""
    own: SessionOptions | None = section.get("session_options")
    if own is None or not section.get("inherit_session_options"):
        return own
    given = {item.name: getattr(own, item.name) for item in fields(own)}
    below = config.model.decoder.session_options
    changes = {key: value for key, value in given.items() if value not in (None, (), {})}
    entries = {**below.config_entries, **own.config_entries}
    return replace(below, **changes | {"config_entries": entries})
