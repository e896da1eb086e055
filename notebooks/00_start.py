# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Look inside an answer
#
# A language model writes one small piece of text at a time: a **token**, often a word or a part of one. For each token
# it gives every piece it knows a score, and one of them is picked. This notebook lets a real model answer on this
# machine and shows each of those picks: what else could have been said, how the pick was made, and where the time went.
#
# Run the cells from top to bottom (Shift+Enter).

# %% [markdown]
# ## 1. A model
# SmolLM2-135M-Instruct, a small chat model. The first time it is fetched and converted, which takes a minute; after
# that it loads in about a second.

# %%
import genai_lab

model = genai_lab.load("smollm2")
tokenizer = genai_lab.Tokenizer(model)
model

# %% [markdown]
# ## 2. A question becomes tokens
# The **chat template** wraps the question in the marks that the model was trained with. The **tokenizer** cuts the text
# into tokens; to the model, each is just a number.

# %%
question = "Why is the sky blue?"
prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}])
tokens = tokenizer.encode(prompt)
print(prompt)
print(f"{len(tokens)} tokens, the last ten:", [tokenizer.piece(token) for token in tokens[-10:]])

# %% [markdown]
# ## 3. The model answers, and every step is recorded
# The loop is yours. `append_tokens` lets the model read the question, all at once: that is called **prefill**. Then
# each `generate_next_token()` makes one token: one step of **decode**. `record()` around it changes nothing about the
# answer; it keeps what happened, for the pictures below.
#
# `do_sample=True` draws each token at random, by the model's own probabilities, as changed by three settings:
#
# - `temperature` below 1 makes likely tokens likelier still, above 1 it evens them out.
# - `top_k=40` keeps the 40 most likely tokens and cuts the rest.
# - `top_p=0.9` keeps the most likely tokens until together they reach 90 %.
#
# `random_seed` fixes the draws: the same number gives the same answer again. Without it, every run differs.

# %%
params = genai_lab.GeneratorParams(model)
params.set_search_options(
    max_length=len(tokens) + 60, do_sample=True, temperature=0.8, top_k=40, top_p=0.9, random_seed=7
)

with genai_lab.record() as trace:
    generator = genai_lab.Generator(model, params)
    generator.append_tokens(tokens)
    stream = tokenizer.create_stream()
    while not generator.is_done():
        generator.generate_next_token()
        print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)

trace

# %% [markdown]
# **The words in the pictures.**
#
# - **Raw**: the probabilities that the model itself gave, before any setting. A token's **rank** among them is 1 when
#   it was the most likely one, 2 when it came second.
# - **Entropy**: how much the model hesitated, in bits. 0 bits: it was certain. 3 bits: it hesitated as if between
#   2 x 2 x 2 = 8 **equally likely** tokens.
# - The **histogram** counts the thousands of tokens that are too unlikely to be listed, by how unlikely they are.
# - **Penalty** (`repetition_penalty`, not used here): above 1, it makes tokens that were already said less likely.
# - **Commit**: the picked token is put at the end of the text, and the model reads it in the next step.
#
# **Try this.** Click a token: the pictures below follow. Under the answer, click another candidate: the model goes on
# from there with your choice, and you see where that would have led. In the second picture, drag *temperature* to the
# left and watch the list shrink to one. In the third, zoom into one token.

# %% [markdown]
# ## 4. Watch it happen
# `ask` does the same in one call and shows the answer while it is written. **Stop** ends it between two tokens, also
# while a cell waits for it with `story.wait()`.

# %%
story = genai_lab.ask(
    model,
    "Write a short story about a lighthouse.",
    max_new_tokens=80,
    temperature=0.8,  # naming it means sampling
    top_k=40,
)
story

# %% [markdown]
# ## 5. The same as numbers
# Whatever a picture shows can be read as a table, saved, and opened again later. Mind the counting: pictures call the
# first token 1, tables and calls count from 0, as Python does. `index` 3 here is token 4 in a picture.

# %%
story.wait()
doubtful = story.tokens().sort_values("entropy", ascending=False).head(8)
doubtful[["index", "text", "prob", "rank", "entropy", "latency_ms"]].round(3)

# %% [markdown]
# Those are the tokens at which the model hesitated most. `story.candidates(3)` lists what else could have been the
# fourth token; `story.stages()` has the time of every stage;
# `story.save("story.npz")` keeps it all, and `story.to_html("story.html")` makes a page that works anywhere.
