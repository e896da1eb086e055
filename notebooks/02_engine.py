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
# Four words first.
#
# - A **request** is one conversation.
# - In a **step**, the engine decides who takes part, runs the model for them, and hands out the new tokens.
# - **Prefill**: a prompt is read. **Decode**: an answer gets one token more.
# - What the model has read of a conversation is kept (its keys and values, the **KV cache**), so that it need not be
#   read again. That memory is cut into **blocks** of 16 tokens, all in one **pool**.

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
# This engine is made small on purpose, so that it has to choose: four conversations may run at a time
# (`max_batch_size`), a step may compute 48 tokens (`max_scheduled_tokens`), and the pool has 40 blocks (`num_blocks`).

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
    print(f"{question}\n    {answer}")

# %% [markdown]
# ## The whole run in one picture
# In the picture the requests are called A to H; in calls they are 0 to 7. The bar at the top is the **playhead**: it
# stands at one step, and everything below shows that step. Play it, drag it, or jump to the next step of a kind. Shown
# before the run begins, the picture grows while the engine works. At the end stands the answer of the chosen request:
# click a token, then another candidate, and the model goes on from there.

# %%
trace.show(model=model)

# %% [markdown]
# ## Why did one wait?
# Click *waits* above the rows, or any dashed stretch: the words beneath say which rule was followed, with its numbers,
# and what would have changed it. The same in Python:

# %%
for request, step in ((2, 0), (3, 1), (7, 1), (4, 5)):
    print(trace.why(request, step))

# %% [markdown]
# C waits in step 0, as do all others, because A reads the words that all eight begin with: reading them once is enough.
# D waits in step 1 because the 48 tokens of the step are spent: 5 on A, 23 on B and 20 on C. H could not have been read
# either, and it does not overtake D: first come, first served. E waits in step 5 because four answers are under way and
# there is no fifth place.
#
# ## A prompt is read in pieces
# A's prompt has 37 tokens, but in step 0 only 32 of them are read (`chunk_size`): a long prompt must not keep the
# others from their next token. This is called **chunked prefill**. The table has a line for each step: how many
# answers got a token (`decoding`), how many prompts were read (`prefilling`), and how much of the budget was used.

# %%
steps = trace.steps()[["step", "decoding", "prefilling", "waiting", "num_tokens", "budget", "blocks_used"]]
steps.head(12).style.hide(axis="index")

# %% [markdown]
# ## What is shared?
# All eight prompts begin with the same words. Go to a step in the middle and look at block 0: it says how many requests
# use it, and has a dot in the colour of each. The model read that beginning once, for A; the others found it. That is a
# **prefix hit**, a hatched box in the rows. Only full blocks of 16 tokens are shared.

# %%
trace.requests()[["request", "prompt_tokens", "cached_prompt_tokens", "queue_ms", "ttft_ms", "ms_per_token"]].round(1)

# %% [markdown]
# `cached_prompt_tokens` is what need not be read again. Only A has none: it came first, so nothing was there to be
# found. `queue_ms` is how long a request waited for its place, `ttft_ms` the time until its first token.
#
# ## A smaller pool
# With 10 blocks not all four fit to their end. When an answer needs a block and none is free, the one that came last
# gives up its place (a cross), and later reads again what the cache no longer has. This is called **preemption**.
# Click *loses its place* to see who needed the block; `recomputed_tokens` of `tight.requests()` is what it cost. The
# answers are the same as before: what an answer says does not depend on who else is answered, nor on having lost its
# place. (On some processors an engine's numbers differ in their last digits from those of a `Generator` that answers
# alone; `engine.batch_is_exact` says whether they do here.)

# %%
tight, again = serve(num_blocks=10)
print(sum(a == b for a, b in zip(answers, again, strict=True)), "of", len(answers), "answers are the same as before")
tight.show("batching")

# %% [markdown]
# ## Your own policy
# Who goes first is decided by a small class, the **policy**. The smallest `key` goes first; this one lets the longest
# question begin. Besides `remaining` (tokens to read) a request has `arrival_step`, `priority`, `num_tokens`,
# `preemptions` and more: `help(genai_lab.engine.RequestView)`. Change `key` and run the cell again; a plan that
# cannot be carried out is refused, and says what it did.

# %%


class LongestFirst(OrderedPolicy):
    def key(self, request, view):
        return -request.remaining


mine, _ = serve(policy=LongestFirst())
print(mine.why(0, 0))
mine.show("batching")
