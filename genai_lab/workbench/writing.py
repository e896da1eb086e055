"""One run written in the background: from a request to its last token. Stoppable at any moment.

Receives what to write and a recorder. Everything that happens, an error too, ends up in the recorder as a run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, CapacityError, ModelFolderError, StateError
from genai_lab.generation import Generator, GeneratorParams, Tokenizer, TokenizerStream, own_rules
from genai_lab.generation.one import One
from genai_lab.models import Model
from genai_lab.tracing import Recorder, use_tracer
from genai_lab.types import FinishReason
from genai_lab.workbench.block import current_block
from genai_lab.workbench.branch_tracer import BranchTracer, Fork
from genai_lab.workbench.kept import KEPT

Prompt = str | Sequence[Mapping[str, Any]]
_NOBODY: NDArray[np.int32] = np.empty(0, np.int32)


class Home(Protocol):
    """Where a run's facts go, and who wants to know about them."""

    @property
    def recorder(self) -> Recorder: ...
    @property
    def lock(self) -> AbstractContextManager[Any]: ...
    def began(self, job: Writing) -> None: ...
    def opened(self, job: Writing) -> None: ...
    def wrote(self) -> None: ...
    def ended(self, job: Writing) -> None: ...
    def generators(self) -> list[Generator]: ...


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt to answer."""

    prompt: Prompt
    chat: bool  # through the model's chat template


class Writing:
    """A background job (see `worker.Job`) that writes one run.

    Args:
        home: whose run it is.
        model: writes it.
        params: its search options.
        task: a question, or the fork of another run.
        prefix: every token before the fork, [n]; unused for a question.
        on_text: given each piece of text as it becomes certain, in the background thread.
    """

    def __init__(
        self,
        home: Home,
        model: Model,
        params: GeneratorParams,
        task: Question | Fork,
        prefix: NDArray[np.int32] = _NOBODY,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self.home, self.model, self.params, self.task = home, model, params, task
        self.prefix, self.on_text = prefix, on_text
        self.run_id: int | None = None
        self.error: Exception | None = None
        self.done = threading.Event()
        self._lock = threading.Lock()  # of the two below
        self._stopping = threading.Event()
        self._generator: Generator | None = None  # while it may be interrupted
        self._block = current_block()
        if self._block is not None:
            self._block.began(self)

    # ---- the job ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Write the run to its end, to a stop or to an error."""
        self.home.began(self)
        fork = self.task if isinstance(self.task, Fork) else None
        tracer = BranchTracer(self.home.recorder, self.home.lock, fork, self._opened)
        try:
            with use_tracer(tracer):
                self._write()
            if self.run_id is None:
                self._open_empty(tracer)
                tracer.close_run(self._run(), "stopped")
        except Exception as error:  # whatever it is: shown in the page, and raised by trace.wait()
            self._end_badly(tracer, error)
        finally:
            self._end(fork is not None)

    def stop(self) -> None:
        """End as soon as possible: before the next token, or inside the model's run over a long prompt."""
        with self._lock:
            self._stopping.set()
            if self._generator is not None:
                interrupt(self._generator, True)

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    # ---- inside -------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self.stopping:
            return
        stream = self._stream()
        generator, unread = self._begin()
        with self._lock:
            self._generator = generator
            if self.stopping:
                return
        if unread.size:
            generator.append_tokens(unread)
        if isinstance(self.task, Fork) and isinstance(generator._search, One):
            generator._search.answer_from(answer_start(self.home.recorder, self.task.run))
        if isinstance(self.task, Fork) and self.task.token is not None:
            self._show(stream, self.task.token)
            if self.task.token in self.model.config.model.eos_token_ids:
                self.home.recorder.close_run(self._run(), "eos")
                return
        while not generator.is_done():
            if self.stopping:
                generator.stop()
                return
            before = generator.token_count()
            generator.generate_next_token()
            new = generator.get_sequence(0)[before:].tolist()  # a grammar may force some before the chosen one
            ended = generator.finish_reason is FinishReason.EOS
            for token in [*new, int(generator.get_next_tokens()[0])] if ended else new:
                self._show(stream, token)

    def _begin(self) -> tuple[Generator, NDArray[np.int32]]:
        """The generator, and the tokens that it must read first."""
        with own_rules():  # what is drawn anew after a rewind does not come back first, as it would in og_compat()
            if isinstance(self.task, Question):
                ids = encode_prompt(self.model, self.task)
                return Generator(self.model, self.params), ids
            prepared = KEPT.prepare(self.model, self.params, self.prefix, self.home.generators())
        by_hand = [] if self.task.token is None else [self.task.token]
        return prepared.generator, np.concatenate([prepared.rest, np.array(by_hand, np.int32)])

    def _end(self, branch: bool) -> None:
        try:
            self._let_go(branch)
        except Exception as error:  # whoever waits must hear of it
            self.error = self.error or error
        try:
            if self._block is not None and self.run_id is not None:
                self._block.take(self.home.recorder, self.run_id)
        except Exception as error:
            self.error = self.error or error
        try:
            self.home.ended(self)
        except Exception as error:  # a picture that cannot be told must not keep others waiting
            self.error = self.error or error
        finally:
            self.done.set()

    def _let_go(self, branch: bool) -> None:
        with self._lock:
            generator, self._generator = self._generator, None
            if generator is None:
                return
            interrupt(generator, False)
        KEPT.keep(generator, branch=branch)

    def _stream(self) -> TokenizerStream | None:
        try:
            return tokenizer_of(self.model).create_stream()
        except ModelFolderError:  # a folder without a tokenizer still writes tokens
            return None

    def _show(self, stream: TokenizerStream | None, token: int) -> None:
        text = "" if stream is None else stream.decode(token)
        if text and self.on_text is not None:
            self.on_text(text)
        self.home.wrote()

    def _opened(self, run: int) -> None:
        self.run_id = run
        self.home.opened(self)

    def _run(self) -> int:
        if self.run_id is None:
            raise StateError("the run has not begun")
        return self.run_id

    def _end_badly(self, tracer: BranchTracer, error: Exception) -> None:
        """A model run that was told to stop raises too; that is no error."""
        if self.run_id is None:
            self._open_empty(tracer)
        if self.stopping:
            tracer.close_run(self._run(), "stopped")
            return
        self.error = error
        tracer.close_run(self._run(), "failed", f"{type(error).__name__}: {error}")

    def _open_empty(self, tracer: BranchTracer) -> None:
        """A run that ended before its first event is a run all the same: whoever asked for it sees what became of
        it."""
        mode = self.params.effective_mode
        forced = self.task.token if isinstance(self.task, Fork) else None
        prompt = self.prefix if forced is None else np.append(self.prefix, np.int32(forced))
        tracer.open_run(
            prompt=prompt,
            settings=asdict(self.params.options)
            | {"mode": mode.mode.value, "mode_reason": mode.reason}
            | self.params.hooks.describe(),
            model=facts_of(self.model),
            describe=self.model.token_texts,
        )


def answer_start(recorder: Recorder, run: int) -> int:
    """How many tokens stand before the answer that `run`, a branch of a branch perhaps, is part of."""
    facts = recorder.runs[run]
    return int(facts.prompt.size) if facts.parent is None else answer_start(recorder, facts.parent)


def facts_of(model: Model) -> dict[str, Any]:
    """The facts that a trace keeps about a model; fewer of one that was closed."""
    try:
        return model.describe()
    except StateError:
        return {"name": model.config.folder.name, "vocab_size": model.vocab_size}


def interrupt(generator: Generator, on: bool) -> None:
    """Tell a model run in progress to end, or allow runs again."""
    search = generator._search
    if isinstance(search, One):  # a batch or a beam search ends before its next step
        search._state.terminated = on


_tokenizers: WeakKeyDictionary[Model, Tokenizer] = WeakKeyDictionary()


def tokenizer_of(model: Model) -> Tokenizer:
    """The model's tokenizer, made once: reading its file takes longer than a short answer."""
    tokenizer = _tokenizers.get(model)
    if tokenizer is None:
        tokenizer = _tokenizers[model] = Tokenizer(model)
    return tokenizer


def encode_prompt(model: Model, question: Question) -> NDArray[np.int32]:
    """Token ids of a question, [n], through the chat template if wanted.

    Raises:
        ArgumentError, ArgumentTypeError: text or messages that cannot be encoded, or text without any token.
        TemplateError: the model has no chat template, or it refuses the messages.
    """
    tokenizer, prompt = tokenizer_of(model), question.prompt
    if question.chat:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        prompt = tokenizer.apply_chat_template(messages)
    tokens = tokenizer.encode(str(prompt))
    if tokens.size == 0:
        raise ArgumentError("prompt is empty, so there is nothing to go on from; give at least one character")
    return tokens


def check_room(prompt_tokens: int, max_length: int, context_length: int) -> None:
    """
    Raises:
        CapacityError: not one token fits after the prompt; says which of the two limits it is.
    """
    if prompt_tokens < max_length:
        return
    so_far = f"the prompt, with the chat template's marks, has {prompt_tokens:,} tokens"
    if prompt_tokens < context_length:
        raise CapacityError(
            f"{so_far}, and max_length, which counts them too, is {max_length:,}: no room for an answer. Give a "
            f"max_length from {prompt_tokens + 1:,} to {context_length:,}, or leave it out"
        )
    raise CapacityError(
        f"{so_far}, and the model's context holds {context_length:,}: no room for an answer. Shorten the prompt, or "
        "use a model with a larger context"
    )
