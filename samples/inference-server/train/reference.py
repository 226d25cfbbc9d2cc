#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a Hugging Face Llama folder gives in plain fp32 PyTorch: the reference for the server's own arithmetic.

    train/reference.py model --ids 0,42,7 --out logits.bin      float32, little-endian, a row of the vocabulary per id
    train/reference.py model --ids 0,42,7 --greedy 20           prints the 20 ids that follow
    train/reference.py model --text "In the beginning" --greedy 20

Reads config.json and *.safetensors itself; weights of any float type become fp32. Rotary positions: those of Llama 2
(plain) and 3.1 (rope_type llama3). Needs PyTorch, and for --text the tokenizer of train.py, whose text is ASCII.
"""

import argparse
import glob
import json
import math
import os
import struct

import torch
from torch.nn import functional as F

TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def read_safetensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), bytearray(file.read())
    header.pop("__metadata__", None)
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        kind, count = TYPES[entry["dtype"]], math.prod(entry["shape"])
        width = torch.empty((), dtype=kind).element_size()
        if start != end or stop - start != count * width:
            raise ValueError(f"{path}: {name} is at {start} to {stop}, after {end}, for {entry['shape']}")
        end = stop
        tensors[name] = torch.frombuffer(data, dtype=kind, count=count, offset=start).view(entry["shape"]).float()
    if end != len(data):
        raise ValueError(f"{path}: {len(data)} bytes of data, of which the header names {end}")
    return tensors


class Model:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = c = json.load(file)
        self.weights = {}
        for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
            self.weights.update(read_safetensors(path))
        self.heads, self.kv_heads = c["num_attention_heads"], c.get("num_key_value_heads") or c["num_attention_heads"]
        self.width = c.get("head_dim") or c["hidden_size"] // self.heads
        self.rates = self.frequencies()

    def frequencies(self):
        c, half = self.config, torch.arange(0, self.width, 2, dtype=torch.float64)
        rates = float(c.get("rope_theta", 10000.0)) ** (-half / self.width)
        scaling = c.get("rope_scaling")
        if not scaling:
            return rates
        if scaling.get("rope_type") != "llama3":
            raise ValueError(f"rope_scaling {scaling} is not known here")
        low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
        turns = scaling["original_max_position_embeddings"] * rates / (2 * math.pi)
        share = ((turns - low) / (high - low)).clamp(0, 1)  # 1: kept as it is; 0: stretched by the factor
        return rates * (share + (1 - share) / factor)

    def norm(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[name + ".weight"]

    def linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def attention(self, x, name, cos, sin):
        count, half = len(x), self.width // 2
        split = lambda y: y.view(count, -1, self.width).transpose(0, 1)
        turn = lambda y: y * cos + torch.cat((-y[..., half:], y[..., :half]), -1) * sin
        q, k, v = (split(self.linear(x, f"{name}.{part}_proj")) for part in "qkv")
        group = self.heads // self.kv_heads
        q, k, v = turn(q), turn(k).repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        hidden = torch.ones(count, count, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(1, 2) / math.sqrt(self.width)).masked_fill(hidden, -math.inf)
        y = torch.softmax(scores, -1) @ v
        return self.linear(y.transpose(0, 1).reshape(count, -1), f"{name}.o_proj")

    def logits(self, ids):
        """A row of logits for each id: what is to follow it."""
        angles = torch.outer(torch.arange(len(ids), dtype=torch.float64), torch.cat((self.rates, self.rates)))
        cos, sin = angles.cos().float(), angles.sin().float()
        x = self.weights["model.embed_tokens.weight"][torch.tensor(ids)]
        for number in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{number}"
            x = x + self.attention(self.norm(x, f"{name}.input_layernorm"), f"{name}.self_attn", cos, sin)
            y = self.norm(x, f"{name}.post_attention_layernorm")
            gate, up = self.linear(y, f"{name}.mlp.gate_proj"), self.linear(y, f"{name}.mlp.up_proj")
            x = x + self.linear(F.silu(gate) * up, f"{name}.mlp.down_proj")
        head = "model.embed_tokens" if self.config.get("tie_word_embeddings") else "lm_head"
        return self.linear(self.norm(x, "model.norm"), head)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the folder")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--ids", help="token ids, with commas between them; no begin token is added")
    given.add_argument("--text", help="a text, which the begin token is put before")
    parser.add_argument("--out", help="the file for the logits of the given ids")
    parser.add_argument("--greedy", type=int, default=0, metavar="N", help="print the N most likely ids that follow")
    options = parser.parse_args()
    if options.text is not None:
        from train import Tokenizer

        tokenizer = Tokenizer(os.path.join(options.model, "tokenizer.json"))
        ids = [0, *tokenizer.encode(options.text)]
    else:
        ids = [int(id) for id in options.ids.split(",")]
    with torch.no_grad():
        model, given = Model(options.model), len(ids)
        if options.out:
            model.logits(ids).numpy().astype("<f4").tofile(options.out)
        for _ in range(options.greedy):
            ids.append(int(model.logits(ids)[-1].argmax()))
    print(",".join(map(str, ids[given:] if options.greedy else ids)))
    if options.text is not None and options.greedy:
        print(tokenizer.decode(ids))


if __name__ == "__main__":
    main()
