# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Many conversations, one model
#
# A server does not answer one question after another. It lets many conversations share each run of the model, because
# a run for eight costs little more than a run for one. Something has to decide who takes part in which run, and where
# the memory of each conversation lives: the **engine**. Here eight real conversations go through it, and every decision
# can be asked why.
#
# The memory is cut into **blocks** of 16 tokens. What the model has read of a conversation (its keys and values) fills
# blocks; conversations with the same beginning share them.

# %%
import genai_lab
from genai_lab.engine import OrderedPolicy

model = genai_lab.load("smollm2")
tokenizer = genai_lab.Tokenizer(model)
SYSTEM = "You are a patient teacher. Answer in one short sentence, in plain words, without lists."
QUESTIONS = [
    "What is rain?",
    "Why do cats purr?",
    "What is a prime number?",
    "Who invented paper?",
    "Why is the sea salty?",
    "How far is the moon?",
    "What do bees eat?",
    "Why do we sleep?",
]


def prompt(question):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    return tokenizer.encode(tokenizer.apply_chat_template(messages))


prompts = [prompt(question) for question in QUESTIONS]
print([len(tokens) for tokens in prompts], "tokens each; the first", len(SYSTEM.split()), "words or so are the same")

# %% [markdown]
# ## Eight requests, four places
# This engine is made small on purpose: four conversations may run at a time, a step may compute 48 tokens, and the pool
# has 40 blocks. So some must wait, and prompts are read in chunks.

# %%


def serve(**settings):
    """Ask everything at once; returns the trace and the engine's answers."""
    with genai_lab.record() as trace:
        engine = genai_lab.Engine(
            model,
            max_batch_size=4,
            max_scheduled_tokens=48,
            max_session_tokens=160,
            chunk_size=32,
            **({"num_blocks": 40} | settings),
        )
        requests = [engine.create_request() for _ in prompts]
        for request, tokens in zip(requests, prompts, strict=True):
            options = genai_lab.TurnOptions(request)
            options.set_max_generated_tokens(24)
            request.begin_turn(tokens, options)
        events = engine.create_event_buffer(64)
        while engine.has_pending_requests():
            engine.run(events)
        answers = [
            tokenizer.decode(request.tokens()[len(tokens) :]) for request, tokens in zip(requests, prompts, strict=True)
        ]
    return trace, answers


trace, answers = serve()
for question, answer in zip(QUESTIONS, answers, strict=True):
    print(f"{question:28} {answer}")

# %% [markdown]
# ## Who is served in which step?
# High boxes: a piece of the prompt is read. Low boxes: one more token of the answer. Dashes: the request waits.

# %%
_ = trace.plot.timeline()

# %% [markdown]
# ## Why did request 7 wait?
# The engine says which rule it followed, the numbers it compared, and what would have changed the verdict.

# %%
for request, step in ((7, 0), (2, 0), (7, 5), (4, 5), (4, 11)):
    print(trace.why(request, step))

# %% [markdown]
# ## Which blocks are shared?
# A thick border: several conversations use the same block, because their prompts begin alike. The model read that
# beginning once.

# %%
_ = trace.plot.pool()
trace.requests()[
    ["request", "prompt_tokens", "cached_prompt_tokens", "queue_ms", "ttft_ms", "ms_per_token", "preemptions"]
].round(1)

# %% [markdown]
# ## A smaller pool
# With 10 blocks not all four fit to their end. When an answer needs a block and none is free, the last one gives up its
# place (a cross), and later reads everything again. The answers should not change. (On some processors the 4-bit
# kernels round a batch a little differently from a single row, so that an answer may turn another way; with `int8` or
# `fp32` it cannot.)

# %%
tight, again = serve(num_blocks=10)
print(sum(a == b for a, b in zip(answers, again, strict=True)), "of", len(answers), "answers are the same as before")
_ = tight.plot.timeline()

# %% [markdown]
# ## Your own policy
# Who goes first is decided by a small class. This one lets the longest question go first. Change `key` and run the cell
# again; a plan that cannot be carried out is refused, and says what it did.

# %%


class LongestFirst(OrderedPolicy):
    def key(self, request, view):
        return -request.remaining


mine, _ = serve(policy=LongestFirst())
_ = mine.plot.timeline()
