#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the sample's model: a small Llama, and writes it as a Hugging Face folder.

    train/prepare.sh text.txt                                                  the text, from Debian packages
    train/train.py --text text.txt --out model --tokenizer-only                tokenizer.json and config.json, anywhere
    train/train.py --text text.txt --out model --seconds 240                   model.safetensors, on a GPU

Needs PyTorch (1.13 or newer, of which 2.x on a GPU is the one to train with) and numpy, and nothing else. The text may
be compressed (.xz); a form feed divides it into documents. A tokenizer.json that is already in the folder is kept.
"""

import argparse
import collections
import json
import lzma
import math
import os
import re
import struct
import sys
import time

BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 2048,
}

# ------------------------------------------------------------------------------------------------ the tokenizer

# GPT-2's pattern, which Hugging Face's ByteLevel uses, for ASCII text: \p{L} is a letter and \p{N} a digit.
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)


def byte_characters():
    """GPT-2's table: a visible character for each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, unused = {}, 256
    for byte in range(256):
        table[byte] = chr(byte) if byte in visible else chr(unused)
        unused += byte not in visible
    return table


CHARACTERS = byte_characters()


def spell(word):
    return [CHARACTERS[byte] for byte in word.encode()]


def join(symbols, pair):
    """Replaces each occurrence of a pair by the one symbol it makes, from the left."""
    out, at = [], 0
    while at < len(symbols):
        here = tuple(symbols[at : at + 2]) == pair
        out.append(pair[0] + pair[1] if here else symbols[at])
        at += 2 if here else 1
    return out


def train_bpe(text, size):
    """Byte pair encoding over the counts of words: merges the most frequent pair until the vocabulary is full."""
    counts = collections.Counter(WORDS.findall(text))
    words = [spell(word) for word in counts]
    weights = list(counts.values())
    pairs, places = collections.Counter(), collections.defaultdict(set)
    for number, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += weights[number]
            places[pair].add(number)
    vocabulary, merges = [BEGIN, END, *(CHARACTERS[byte] for byte in range(256))], []
    while len(vocabulary) < size:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        vocabulary.append(best[0] + best[1])
        for number in places.pop(best):
            for pair in zip(words[number], words[number][1:]):
                pairs[pair] -= weights[number]
            words[number] = join(words[number], best)
            for pair in zip(words[number], words[number][1:]):
                pairs[pair] += weights[number]
                places[pair].add(number)
        del pairs[best]
    assert len(set(vocabulary)) == size, "two merges made one token"
    return vocabulary, merges


def tokenizer_json(vocabulary, merges):
    """What Hugging Face's tokenizers reads. Encoding puts the begin token first, as Llama 3's tokenizer does."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    begin = {"SpecialToken": {"id": BEGIN, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": kind}} for kind, name in enumerate("AB"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": content, **token} for id, content in enumerate((BEGIN, END))],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, first],
            "pair": [begin, first, {"SpecialToken": {"id": BEGIN, "type_id": 1}}, second],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [0], "tokens": [BEGIN]}},
        },
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: id for id, token in enumerate(vocabulary)},
            "merges": [" ".join(pair) for pair in merges],
        },
    }


class Tokenizer:
    """Encodes as Hugging Face's tokenizers does, for ASCII text, and without the begin token."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            model = json.load(file)["model"]
        self.ids, self.known = model["vocab"], {}
        self.ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(model["merges"])}
        self.tokens = {id: token for token, id in self.ids.items()}
        self.bytes = {character: byte for byte, character in CHARACTERS.items()}

    def encode(self, text):
        return [id for word in WORDS.findall(text) for id in self.known.get(word) or self.word(word)]

    def word(self, word):
        symbols = spell(word)
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda pair: self.ranks.get(pair, math.inf))
            if best not in self.ranks:
                break
            symbols = join(symbols, best)
        self.known[word] = [self.ids[symbol] for symbol in symbols]
        return self.known[word]

    def decode(self, ids):
        text = "".join(self.tokens[id] for id in ids if id > 1)
        return bytes(self.bytes[character] for character in text).decode("utf-8", "replace")


# ------------------------------------------------------------------------------------------------ the model


def define_model():
    """The model's classes, made only when needed: the tokenizer needs no PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Norm(nn.Module):
        def __init__(self, width, epsilon):
            super().__init__()
            self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

        def forward(self, x):
            wide = x.float()
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
            return self.weight * wide.to(x.dtype)

    class Attention(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.heads, self.kv_heads, self.width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
            self.q_proj = nn.Linear(c["hidden_size"], self.heads * self.width, bias=False)
            self.k_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.width, bias=False)
            self.v_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.width, bias=False)
            self.o_proj = nn.Linear(self.heads * self.width, c["hidden_size"], bias=False)

        def forward(self, x, cos, sin):
            split = lambda y: y.view(*y.shape[:2], -1, self.width).transpose(1, 2)
            half = self.width // 2
            turn = lambda y: (y * cos + torch.cat((-y[..., half:], y[..., :half]), -1) * sin).to(y.dtype)
            q, k, v = turn(split(self.q_proj(x))), turn(split(self.k_proj(x))), split(self.v_proj(x))
            group = self.heads // self.kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            if hasattr(F, "scaled_dot_product_attention"):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                length = x.shape[1]
                hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                scores = (q @ k.transpose(-1, -2) / math.sqrt(self.width)).masked_fill(hidden, -math.inf)
                y = torch.softmax(scores.float(), -1).to(v.dtype) @ v
            return self.o_proj(y.transpose(1, 2).reshape(*x.shape[:2], -1))

    class FeedForward(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
            self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
            self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self, c, dropout):
            super().__init__()
            self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
            self.self_attn = Attention(c)
            self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
            self.mlp = FeedForward(c)
            self.drop = nn.Dropout(dropout)

        def forward(self, x, cos, sin):
            x = x + self.drop(self.self_attn(self.input_layernorm(x), cos, sin))
            return x + self.drop(self.mlp(self.post_attention_layernorm(x)))

    class Llama(nn.Module):
        def __init__(self, c, dropout):
            super().__init__()
            self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
            self.layers = nn.ModuleList(Layer(c, dropout) for _ in range(c["num_hidden_layers"]))
            self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
            self.drop = nn.Dropout(dropout)
            rates = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])
            angles = torch.outer(torch.arange(c["max_position_embeddings"]).float(), torch.cat((rates, rates)))
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
            for name, weight in self.named_parameters():
                if weight.dim() > 1:  # those that add to the residual stream start smaller, by its depth
                    deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                    nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * len(self.layers)) if deep else 1))

        def forward(self, ids):
            x = self.drop(self.embed_tokens(ids))
            for layer in self.layers:
                x = layer(x, self.cos[: ids.shape[1]], self.sin[: ids.shape[1]])
            return F.linear(self.norm(x), self.embed_tokens.weight)

    return Llama


# ------------------------------------------------------------------------------------------------ training


def windows(documents, length):
    """All ids in a row, and for each place where a window can begin: at the start of the line, or here in a long one.

    A window is the begin token and then what follows such a place, so that the model knows any line as a beginning,
    not only a chapter's heading. A place is near enough to the end of its line to be seen in its window.
    """
    import numpy

    ids = numpy.array([id for document in documents for id in (*document["ids"], 1)], dtype=numpy.int64)
    starts, here, last = numpy.zeros(len(ids), dtype=numpy.int64), 0, None
    for place, id in enumerate(ids):
        if last == 1 or last == documents[0]["newline"]:
            here = place
        starts[place] = here if place - here < length // 2 else place
        last = id
    return ids, starts[: len(ids) - length]


def train(model, tokens, starts, held, options, device):
    """Trains for the given time; returns the weights with the best loss on the held-out text."""
    import torch
    from torch.nn import functional as F

    cuda, length = device.type == "cuda", options.length
    decayed = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() == 1]
    groups = [{"params": decayed, "weight_decay": options.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), **({"fused": True} if cuda else {}))
    run = torch.compile(model) if options.compile else model
    span = torch.arange(length, device=device)

    def loss_of(network, places, ids):
        targets = ids[places[:, None] + span]
        inputs = torch.cat((torch.zeros_like(targets[:, :1]), targets[:, :-1]), 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            logits = network(inputs)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def held_out():
        model.eval()
        with torch.no_grad():
            places = torch.arange(0, len(held) - length, length if cuda else 10 * length, device=device)
            losses = [loss_of(model, part, held) * len(part) for part in places.split(options.batch)]
        model.train()
        return (sum(losses) / len(places)).item()

    for _ in range(options.warm):  # the first steps also load kernels, which is no part of the schedule's time
        loss_of(run, starts[:options.batch], tokens).backward()
    optimizer.zero_grad(set_to_none=True)
    best, weights, total, step, since = math.inf, None, torch.zeros((), device=device), 0, 0
    begin = shown = time.monotonic()
    print("seconds,step,tokens,rate,loss,held_out_loss", flush=True)
    while True:
        passed = (time.monotonic() - begin) / options.seconds
        if passed < 1:
            rate = options.rate * min(passed / 0.02, 0.1 + 0.9 * (1 + math.cos(math.pi * passed)) / 2)
            for group in optimizer.param_groups:
                group["lr"] = max(rate, options.rate / 1000)
            places = starts[torch.randint(len(starts), (options.batch,), device=device)]
            loss = loss_of(run, places, tokens)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total, step = total + loss.detach(), step + 1
            if cuda and step % 10 == 0:
                torch.cuda.synchronize()  # the schedule is by time: don't run ahead of the GPU
        if passed >= 1 or time.monotonic() - shown >= 5:
            now = held_out()
            shown = time.monotonic()
            mean, done = total.item() / max(1, step - since), step * options.batch * length
            print(f"{shown - begin:.1f},{step},{done},{rate:.2e},{mean:.4f},{now:.4f}", flush=True)
            total, since = torch.zeros((), device=device), step
            if now < best:
                best, weights = now, {name: w.detach().clone() for name, w in model.state_dict().items()}
        if passed >= 1:
            break
    rounded = {name: weight.bfloat16().to(weight.dtype) for name, weight in weights.items()}
    model.load_state_dict(rounded)
    print(f"held-out loss {best:.4f} at best, {held_out():.4f} as saved in bfloat16", flush=True)
    return rounded


def write_safetensors(path, weights):
    import torch

    header, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, weight in sorted(weights.items()):
        parts.append(weight.bfloat16().cpu().contiguous().view(torch.int16).numpy().astype("<i2").tobytes())
        offsets = [at, at + len(parts[-1])]
        header[f"model.{name}"] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": offsets}
        at = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def say(model, tokenizer, prompt, device, temperature, count=80):
    import torch

    model.eval()
    ids = [0, *tokenizer.encode(prompt)]
    with torch.no_grad():
        while len(ids) < count and ids[-1] != 1:
            logits = model(torch.tensor([ids], device=device))[0, -1]
            chances = torch.softmax(logits / (temperature or 1), -1)
            ids.append(int(torch.multinomial(chances, 1) if temperature else logits.argmax()))
    return tokenizer.decode(ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True, help="the folder to write")
    parser.add_argument("--tokenizer", help="a tokenizer.json to use instead of the folder's own")
    parser.add_argument("--tokenizer-only", action="store_true", help="stop when tokenizer and config are written")
    parser.add_argument("--seconds", type=float, default=240, help="how long to train")
    parser.add_argument("--batch", type=int, default=256, help="sequences per step")
    parser.add_argument("--length", type=int, default=512, help="tokens per sequence")
    parser.add_argument("--rate", type=float, default=2e-3, help="the highest learning rate")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay")
    parser.add_argument("--warm", type=int, default=3, help="steps before the clock starts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="torch.compile: faster steps, after a minute or so")
    options = parser.parse_args()
    began = time.monotonic()
    note = lambda what: print(f"{time.monotonic() - began:.1f} s: {what}", file=sys.stderr, flush=True)

    with (lzma.open if options.text.endswith(".xz") else open)(options.text, "rt", encoding="ascii") as file:
        texts = file.read().split("\f")
    os.makedirs(options.out, exist_ok=True)
    own = os.path.join(options.out, "tokenizer.json")
    if options.tokenizer:
        with open(options.tokenizer, "rb") as source, open(own, "wb") as target:
            target.write(source.read())
    elif not os.path.exists(own):
        vocabulary, merges = train_bpe("\n".join(texts), CONFIG["vocab_size"])
        with open(own, "w", encoding="utf-8") as file:
            json.dump(tokenizer_json(vocabulary, merges), file, ensure_ascii=False, indent=1)
        note("made the tokenizer")
    with open(os.path.join(options.out, "config.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(CONFIG, indent=2) + "\n")
    if options.tokenizer_only:
        return

    import torch

    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    tokenizer = Tokenizer(own)
    newline = tokenizer.ids[CHARACTERS[10]]
    documents = [{"ids": tokenizer.encode(text), "newline": newline} for text in texts]
    ids, starts = windows([d for n, d in enumerate(documents) if n % 40 != 20], options.length)
    held, _ = windows([d for n, d in enumerate(documents) if n % 40 == 20], options.length)
    note(f"encoded {sum(map(len, texts))} characters as {len(ids)} ids to train on and {len(held)} held out")
    tokens, starts, held = (torch.from_numpy(array).to(device) for array in (ids, starts, held))
    model = define_model()(CONFIG, options.dropout).to(device)
    note(f"{sum(weight.numel() for weight in model.parameters())} parameters on {device}, PyTorch {torch.__version__}")
    weights = train(model, tokens, starts, held, options, device)
    write_safetensors(os.path.join(options.out, "model.safetensors"), weights)
    if device.type == "cuda":
        note(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of GPU memory at most")
    for prompt in ("It is a truth universally acknowledged", "In the beginning", "Mr. Darcy"):
        for temperature in (0, 0.8):
            print(f"--- {'sampled' if temperature else 'greedy'}: {say(model, tokenizer, prompt, device, temperature)}")
    note("done")


if __name__ == "__main__":
    main()
