#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random models to which FamiliesTest compares, and what transformers answers with them.

    train/families.py src/test/resources/families

Writes a folder of config.json and model.safetensors for each kind, and expected.safetensors: of each kind the logits
[prompt, step, token] and the greedy tokens [prompt, step] of PROMPTS, with sums of 32 bits. Weights come from a fixed
seed. Needs PyTorch and transformers 5.
"""

import argparse
import copy
import json
import os
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY, STEPS = 64, 24
PROMPTS = [
    [5, 11, 42, 7, 63],
    [9, 9, 30, 1, 17, 55, 2, 48, 21, 36, 60, 14],
    [(7 * i * i + 3 * i + 4) % 64 for i in range(20)],
]
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
WIDE = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}  # divides among four ranks

# By kind: the type of the model, that of its weights, and keys as config.json has them, also in the spelling of older
# versions: then rope_parameters is None.
KINDS = {
    "llama-2": ("llama", "float16", {"num_key_value_heads": 4}),
    "llama-3": ("llama", "bfloat16", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "llama-3.1": ("llama", "bfloat16", {**WIDE, "rope_parameters": {**LLAMA3, "rope_theta": 500000.0}}),
    "llama-3.2": (
        "llama",
        "bfloat16",
        {"tie_word_embeddings": True, "rope_parameters": None, "rope_theta": 500000.0, "rope_scaling": LLAMA3},
    ),
    "llama-bias": ("llama", "bfloat16", {**WIDE, "attention_bias": True, "mlp_bias": True}),
    "llama-dynamic": (
        "llama",
        "bfloat16",
        {"rope_parameters": None, "rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    ),
    "llama-linear": (
        "llama",
        "float16",
        {"rope_parameters": None, "rope_theta": 100000, "rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    "llama-yarn": ("llama", "bfloat16", {"rope_parameters": {**YARN, "rope_theta": 10000.0}}),
    "mistral": ("mistral", "bfloat16", {**WIDE, "sliding_window": 8}),
    "mistral-head-dim": ("mistral", "bfloat16", {"head_dim": 16, "sliding_window": None}),
    "qwen2": ("qwen2", "bfloat16", {"tie_word_embeddings": True, "sliding_window": 8, "max_window_layers": 1}),
    "qwen2-window": (
        "qwen2",
        "bfloat16",
        {
            "hidden_size": 48,
            "num_attention_heads": 6,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 1,
        },
    ),
    "qwen2-yarn": (
        "qwen2",
        "bfloat16",
        {
            "rope_parameters": None,
            "rope_theta": 1000000.0,
            "rope_scaling": {
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "beta_fast": 2,
                "beta_slow": 0.25,
                "mscale": 0.707,
                "mscale_all_dim": 0.5,
                "truncate": False,
            },
        },
    ),
    "qwen3": ("qwen3", "bfloat16", {**WIDE, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    "qwen3-window": (
        "qwen3",
        "bfloat16",
        {
            "head_dim": 8,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {**YARN, "rope_theta": 10000.0, "attention_factor": 1.5},
        },
    ),
    "smollm2": (
        "llama",
        "bfloat16",
        {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3, "tie_word_embeddings": True},
    ),
    "tinyllama": ("llama", "float32", {"rope_parameters": None}),
}


def fill(model, seed):
    """Gives weights that make the logits, and the effect of each key, large."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.2 * noise)
            elif name.endswith(".bias"):
                parameter.copy_(0.3 * noise)
            else:
                parameter.copy_(1.5 / parameter.shape[1] ** 0.5 * noise)


def write(folder, seed, kind):
    model_type, dtype, keys = kind
    given = {key: value for key, value in {**COMMON, **keys}.items() if value is not None or key == "sliding_window"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **copy.deepcopy(given)))
    fill(model, seed)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    for name in os.listdir(folder):
        if name not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(folder, name))
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for key in ("layer_types", "rope_parameters"):
        if keys.get(key, "") is None or (key == "layer_types" and key not in keys):
            config.pop(key, None)
    config.update({key: value for key, value in keys.items() if key in given})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def answer(folder):
    """Returns the logits and greedy tokens, step by step with a cache, checked against one pass without a cache."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    logits, tokens = [], []
    with torch.no_grad():
        for prompt in PROMPTS:
            ids, rows, cache = list(prompt), [], None
            for step in range(STEPS):
                new = ids if cache is None else ids[-1:]
                output = model(input_ids=torch.tensor([new]), past_key_values=cache, use_cache=True)
                cache = output.past_key_values
                rows.append(output.logits[0, -1])
                ids.append(int(rows[-1].argmax()))
            whole = model(input_ids=torch.tensor([ids[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
            difference = (whole - torch.stack(rows)).abs().max().item()
            if difference > 1e-4:
                raise ValueError(f"{folder}: with and without a cache logits differ by {difference}")
            logits.append(torch.stack(rows))
            tokens.append(torch.tensor(ids[len(prompt) :], dtype=torch.float32))
    return torch.stack(logits), torch.stack(tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="the folder")
    out = parser.parse_args().out
    torch.set_num_threads(4)
    expected = {"prompt." + str(i): torch.tensor(p, dtype=torch.float32) for i, p in enumerate(PROMPTS)}
    for seed, (name, kind) in enumerate(sorted(KINDS.items())):
        folder = os.path.join(out, name)
        write(folder, seed, kind)
        logits, tokens = answer(folder)
        best = logits.topk(2).values
        print(f"{name}: logits to {logits.abs().max():.2f}, least margin {(best[..., 0] - best[..., 1]).min():.4f}")
        expected[name + ".logits"] = logits.reshape(-1, VOCABULARY).contiguous()
        expected[name + ".tokens"] = tokens.reshape(1, -1).contiguous()
    save_file(expected, os.path.join(out, "expected.safetensors"))


if __name__ == "__main__":
    main()
