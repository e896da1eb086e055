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
# The loop is yours: each `generate_next_token()` makes one token. `record()` around it changes nothing about the
# answer; it keeps what happened, for the pictures below.
#
# `temperature`, `top_k` and `top_p` decide how daring the picks are. The second picture shows what each of them does.

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
# **Try this.** Click a token: the pictures below follow. Under the answer, click another candidate: the model goes on
# from there with your choice, and you see where that would have led. In the second picture, drag *temperature* to the
# left and watch the list shrink to one. In the third, zoom into one token.

# %% [markdown]
# ## 4. Watch it happen
# `ask` does the same in one call and shows the answer while it is written. **Stop** ends it
# between two tokens, as long as no other cell is running. (The pictures count tokens from 1, tables and calls from 0.)

# %%
story = genai_lab.ask(
    model, "Write a short story about a lighthouse.", max_new_tokens=80, do_sample=True, temperature=0.8, top_k=40
)
story

# %% [markdown]
# ## 5. The same as numbers
# Whatever a picture shows can be read as a table, saved, and opened again later.

# %%
story.wait()
doubtful = story.tokens().sort_values("entropy", ascending=False).head(8)
doubtful[["index", "text", "prob", "rank", "entropy", "latency_ms"]].round(3)

# %% [markdown]
# Those are the tokens at which the model hesitated most (entropy counts its doubt, in bits). `story.candidates(3)`
# lists what else could have been the fourth token; `story.stages()` has the time of every stage;
# `story.save("story.npz")` keeps it all, and `story.to_html("story.html")` makes a page that works anywhere.
