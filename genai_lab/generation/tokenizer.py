"""The tokenizer as callers use it: the pure one, with its stages told to whoever records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab import tokenizer as pure
from genai_lab.tokenizer.vocabulary import Ids
from genai_lab.tracing import current_tracer
from genai_lab.tracing.recorder import NO_RUN
from genai_lab.types import Tensor


class Tokenizer(pure.Tokenizer):
    """Text to token ids and back (og class Tokenizer). See `genai_lab.tokenizer.Tokenizer` for every method."""

    def encode(self, text: str) -> NDArray[np.int32]:
        """Token ids of `text`, [n] int32, without special tokens added."""
        start = perf_counter_ns()
        ids = super().encode(text)
        current_tracer().stage(NO_RUN, NO_RUN, "tokenize", start, perf_counter_ns(), ids.size)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> Tensor:
        """Token ids of several texts, padded on the right, [len(texts), longest] int32."""
        start = perf_counter_ns()
        ids = super().encode_batch(texts)
        current_tracer().stage(NO_RUN, NO_RUN, "tokenize", start, perf_counter_ns(), int(np.prod(ids.shape())))
        return ids

    def decode(self, ids: Ids) -> str:
        """Text of [n] token ids."""
        start = perf_counter_ns()
        text = super().decode(ids)
        current_tracer().stage(NO_RUN, NO_RUN, "detokenize", start, perf_counter_ns(), np.size(ids))
        return text

    def apply_chat_template(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        template_str: str | None = None,
        tools: str | Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> str:
        """The prompt that the model's chat template makes of `messages` (JSON text or a list of dicts)."""
        tracer = current_tracer()
        start = perf_counter_ns()
        prompt = super().apply_chat_template(
            messages,
            template_str=template_str,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **template_kwargs,
        )
        tracer.stage(NO_RUN, NO_RUN, "chat_template", start, perf_counter_ns(), len(prompt))
        if tracer.enabled:
            tracer.question(last_user_message(messages))
        return prompt

    def create_stream(self) -> TokenizerStream:
        """A stream that turns ids into text one by one."""
        return TokenizerStream(self)


class TokenizerStream(pure.TokenizerStream):
    """Incremental text of a growing answer; never half a character."""

    def decode(self, token_id: int) -> str:
        """The text that became certain with this token."""
        start = perf_counter_ns()
        text = super().decode(token_id)
        current_tracer().stage(NO_RUN, NO_RUN, "detokenize", start, perf_counter_ns())
        return text


def last_user_message(messages: str | Sequence[Mapping[str, Any]]) -> str:
    """Text of the last message whose role is "user"; empty when there is none or its content is not text."""
    parsed = json.loads(messages) if isinstance(messages, str) else messages
    for message in reversed(parsed):
        if isinstance(message, Mapping) and message.get("role") == "user":
            content = message.get("content")
            return content if isinstance(content, str) else ""
    return ""
