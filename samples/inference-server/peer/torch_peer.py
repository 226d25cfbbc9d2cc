#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of StepBenchmark: decode steps of the same model in PyTorch, on one GPU, or on several with NCCL.

    peer/torch_peer.py --rows 1,8,64,256                                  one GPU, the shape of Llama 8B
    torchrun --nproc_per_node 2 peer/torch_peer.py --rows 1,8,64,256      two GPUs
    torchrun --nproc_per_node 2 peer/torch_peer.py --gloo                 a check on the CPU, a tiny shape

A step gives each row a token, the last of its --context. Tokens and positions come from pinned memory, the next tokens
go there, and the host waits for them before the next step. It is captured in a CUDA graph for each number of rows and
each of --compile (off: PyTorch's own kernels; default and max-autotune: torch.compile). Ranks split the heads, the MLP
and the vocabulary as the sample's do: fused matrices, two all-reduces a layer, and one for the best token. Attention
reads all --context places of the cache, without the mask that rows of different lengths would need.

"communication" is the time of a step less that of the same graph without its all-reduces. Needs PyTorch 2.5.

--prefill 2048 measures a prompt of so many tokens until its first new token, in one pass: with all-reduces, and on
several GPUs also with the rows divided among them, by PyTorch's fused products.
"""

import argparse
import dataclasses
import os
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    epsilon = 1e-5

    def weight_bytes(self):
        """Of the weights that a step reads, of 16 bits, on all ranks together."""
        layer = self.hidden * (self.head_dim * 2 * (self.heads + self.kv_heads) + 3 * self.inner)
        return 2 * (self.layers * layer + self.vocabulary * self.hidden)


LLAMA_8B = Shape(32, 4096, 14336, 32, 8, 128, 128_256)
TINY = Shape(3, 64, 96, 8, 4, 8, 256)


class Ranks:
    """This process's place among the ranks, and their sums."""

    def __init__(self, gloo, one_shot_bytes):
        self.rank = int(os.environ.get("RANK", 0))
        self.count = int(os.environ.get("WORLD_SIZE", 1))
        self.is_on, self.one_shot_bytes = True, one_shot_bytes
        self.device = torch.device("cpu" if gloo else f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
        if not gloo:
            torch.cuda.set_device(self.device)
        if self.count > 1:
            dist.init_process_group("gloo" if gloo else "nccl")

    def reserve(self, numbers, kind):
        """Reserves memory that all GPUs map: a kernel of PyTorch's sums up to one_shot_bytes there, in NCCL's place."""
        if self.count > 1 and self.one_shot_bytes:
            from torch.distributed import _symmetric_memory as symmetric

            self.shared = symmetric.empty(numbers, dtype=kind, device=self.device)
            symmetric.rendezvous(self.shared, dist.group.WORLD)

    def reduce(self, part, op=dist.ReduceOp.SUM):
        if self.count == 1 or not self.is_on:
            return part
        if op == dist.ReduceOp.SUM and part.numel() * part.element_size() <= self.one_shot_bytes:
            shared = self.shared[: part.numel()].view(part.shape).copy_(part)
            return torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", dist.group.WORLD.group_name)
        dist.all_reduce(part, op)
        return part

    def barrier(self):
        if self.count > 1:
            dist.all_reduce(torch.zeros(1, device=self.device))
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def norm(x, gain, epsilon):
    if not hasattr(F, "rms_norm"):  # an old PyTorch, enough for --gloo
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * gain
    return F.rms_norm(x, gain.shape, gain, epsilon)


def turn(x, cos, sin):
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


def attend(q, keys, values):
    """q: [row, kv head, queries that share it, element]; keys and values: [row, kv head, place, element]."""
    if not hasattr(F, "scaled_dot_product_attention"):
        return torch.softmax(q @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ values
    return F.scaled_dot_product_attention(q, keys, values)


def attention(x, delta, gain, qkv, out, keys, values, rows, positions, angles, epsilon):
    """The residual stream, and this rank's part of what attention adds to it."""
    x, (count, kv_heads, _, head_dim) = x + delta, keys.shape
    projected = F.linear(norm(x, gain, epsilon), qkv).view(count, -1, head_dim)
    heads = projected.shape[1] - 2 * kv_heads
    cos, sin = angles[positions].unsqueeze(1).chunk(2, -1)
    turned = turn(projected[:, : heads + kv_heads], cos, sin)
    keys[rows, :, positions] = turned[:, heads:]
    values[rows, :, positions] = projected[:, heads + kv_heads :]
    q = turned[:, :heads].reshape(count, kv_heads, heads // kv_heads, head_dim)
    return x, F.linear(attend(q, keys, values).reshape(count, -1), out)


def attend_causally(projected, heads, kv_heads, head_dim, angles):
    """The attention of a prompt's rows among themselves."""
    count = projected.shape[0]
    cos, sin = angles[:count].unsqueeze(1).chunk(2, -1)
    projected = projected.view(count, -1, head_dim)
    turned = turn(projected[:, : heads + kv_heads], cos, sin).transpose(0, 1)
    q, keys, values = turned[:heads], turned[heads:], projected[:, heads + kv_heads :].transpose(0, 1)
    if hasattr(F, "scaled_dot_product_attention"):
        mixed = F.scaled_dot_product_attention(q[None], keys[None], values[None], is_causal=True, enable_gqa=True)[0]
    else:
        all_keys, all_values = (each.repeat_interleave(heads // kv_heads, 0) for each in (keys, values))
        scores = q @ all_keys.transpose(-1, -2) / head_dim**0.5
        later = torch.ones(count, count, dtype=torch.bool, device=q.device).triu(1)
        mixed = torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ all_values
    return keys, values, mixed.transpose(0, 1).reshape(count, -1)


def attention_of_prompt(x, delta, gain, qkv, out, heads, kv_heads, head_dim, angles, epsilon):
    projected = F.linear(norm(x := x + delta, gain, epsilon), qkv)
    keys, values, mixed = attend_causally(projected, heads, kv_heads, head_dim, angles)
    return x, keys, values, F.linear(mixed, out)


def mlp(x, delta, gain, gate_and_up, down, epsilon):
    gate, up = F.linear(norm(x := x + delta, gain, epsilon), gate_and_up).chunk(2, -1)
    return x, F.linear(F.silu(gate) * up, down)


def best_token(x, delta, gain, head, first, vocabulary, epsilon):
    """Of each row this rank's best logit, in bits that compare as integers, and behind it the token."""
    logit, index = F.linear(norm(x + delta, gain, epsilon), head).float().max(-1)
    bits = logit.view(torch.int32)
    return ((bits ^ (bits >> 31 & 0x7FFFFFFF)).long() << 32) + (vocabulary - 1 - first - index)


class Model:
    """One rank's part of the model, with its cache."""

    def __init__(self, shape, ranks, rows, context, prompt):
        self.shape, self.ranks, self.context = shape, ranks, context
        self.kind = torch.bfloat16 if ranks.device.type == "cuda" else torch.float32
        self.seed = 1
        d, hidden, inner, part = shape.head_dim, shape.hidden, shape.inner, self.part
        q, kv = shape.heads * d, shape.kv_heads * d
        self.embedding = self.matrix(shape.vocabulary, hidden)
        self.layers = []
        for _ in range(shape.layers):
            qkv = torch.cat([part(self.matrix(n, hidden), 0) for n in (q, kv, kv)])
            out = part(self.matrix(hidden, q), 1).contiguous()
            gate_and_up = torch.cat([part(self.matrix(inner, hidden), 0) for _ in range(2)])
            down = part(self.matrix(hidden, inner), 1).contiguous()
            self.layers.append((qkv, out, gate_and_up, down))
        self.head = part(self.matrix(shape.vocabulary, hidden), 0).clone()
        cache = (2, shape.layers, rows, shape.kv_heads // ranks.count, context, d)
        self.keys, self.values = torch.zeros(cache, dtype=self.kind, device=ranks.device)
        self.prompt_keys, self.prompt_values = self.keys.new_zeros(2, shape.layers, cache[3], prompt, d)
        self.gain = torch.ones(hidden, dtype=self.kind, device=ranks.device)
        self.zeros = torch.zeros(rows, hidden, dtype=self.kind, device=ranks.device)
        rates = 500_000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        angles = torch.outer(torch.arange(max(context, prompt), dtype=torch.float64), rates)
        self.angles = torch.cat((angles.cos(), angles.sin()), -1).float().to(ranks.device)
        ranks.reserve(max(rows, prompt) * hidden, self.kind)
        self.compile("off")

    def matrix(self, outputs, inputs):
        """The same on all ranks, which then take their part of it."""
        self.seed += 1
        generator = torch.Generator(self.ranks.device).manual_seed(self.seed)
        numbers = torch.randn(outputs, inputs, generator=generator, device=self.ranks.device)
        return (numbers * inputs**-0.5).to(self.kind)

    def part(self, matrix, dimension):
        return matrix.chunk(self.ranks.count, dimension)[self.ranks.rank]

    def compile(self, mode):
        self.parts = (attention, mlp, best_token, attention_of_prompt)
        if mode != "off":
            torch._dynamo.reset()
            torch._inductor.config.coordinate_descent_tuning = True  # also turns products of one row into sums
            mode = mode.replace("max-autotune", "max-autotune-no-cudagraphs")
            self.parts = [torch.compile(part, mode=mode, dynamic=False) for part in self.parts]

    def step(self, tokens, positions, rows, places):
        """Returns each row's next token. Attention reads so many places of the cache, in a measurement all."""
        (attend_part, mlp_part, best_part, _), shape, ranks = self.parts, self.shape, self.ranks
        count = tokens.shape[0]
        x, delta = F.embedding(tokens, self.embedding), self.zeros[:count]
        for i, (qkv, out, gate_and_up, down) in enumerate(self.layers):
            cache = self.keys[i, :count, :, :places], self.values[i, :count, :, :places]
            given = self.gain, qkv, out, *cache, rows, positions, self.angles
            x, delta = attend_part(x, delta, *given, shape.epsilon)
            x, delta = mlp_part(x, ranks.reduce(delta), self.gain, gate_and_up, down, shape.epsilon)
            delta = ranks.reduce(delta)
        first = ranks.rank * self.head.shape[0]
        packed = best_part(x, delta, self.gain, self.head, first, shape.vocabulary, shape.epsilon)
        return shape.vocabulary - 1 - (ranks.reduce(packed, dist.ReduceOp.MAX) & 0xFFFFFFFF)


    def prefill(self, tokens):
        """Returns the token after a prompt's, and keeps its keys and values."""
        (_, mlp_part, best_part, attend_part), shape, ranks = self.parts, self.shape, self.ranks
        x = F.embedding(tokens, self.embedding)
        delta = torch.zeros_like(x)
        heads = shape.heads // ranks.count, shape.kv_heads // ranks.count, shape.head_dim
        for i, (qkv, out, gate_and_up, down) in enumerate(self.layers):
            x, keys, values, delta = attend_part(
                x, delta, self.gain, qkv, out, *heads, self.angles, shape.epsilon
            )
            self.keep(i, keys, values)
            x, delta = mlp_part(x, ranks.reduce(delta), self.gain, gate_and_up, down, shape.epsilon)
            delta = ranks.reduce(delta)
        return self.last(best_part, x, delta)

    def fused_prefill(self, tokens):
        """The same with each rank's share of the rows between products, which gather or scatter them."""
        from torch.distributed import _symmetric_memory as symmetric

        shape, ranks, group = self.shape, self.ranks, dist.group.WORLD.group_name
        symmetric.enable_symm_mem_for_group(group)
        gather, scatter = torch.ops.symm_mem.fused_all_gather_matmul, torch.ops.symm_mem.fused_matmul_reduce_scatter
        x = F.embedding(tokens, self.embedding).chunk(ranks.count)[ranks.rank]
        heads = shape.heads // ranks.count, shape.kv_heads // ranks.count, shape.head_dim
        for i, (qkv, out, gate_and_up, down) in enumerate(self.layers):
            _, (projected,) = gather(norm(x, self.gain, shape.epsilon), [qkv.t()], 0, group)
            keys, values, mixed = attend_causally(projected, *heads, self.angles)
            self.keep(i, keys, values)
            x = x + scatter(mixed, out.t(), "sum", 0, group)
            _, (both,) = gather(norm(x, self.gain, shape.epsilon), [gate_and_up.t()], 0, group)
            gate, up = both.chunk(2, -1)
            x = x + scatter(F.silu(gate) * up, down.t(), "sum", 0, group)
        if ranks.rank < ranks.count - 1:
            x = torch.zeros_like(x)  # the last rank has the last row
        row = ranks.reduce(x[-1:].clone())
        return self.last(self.parts[2], row, torch.zeros_like(row))

    def keep(self, layer, keys, values):
        self.prompt_keys[layer, :, : keys.shape[1]] = keys
        self.prompt_values[layer, :, : values.shape[1]] = values

    def last(self, best_part, x, delta):
        shape, ranks = self.shape, self.ranks
        first = ranks.rank * self.head.shape[0]
        packed = best_part(x[-1:], delta[-1:], self.gain, self.head, first, shape.vocabulary, shape.epsilon)
        return shape.vocabulary - 1 - (ranks.reduce(packed, dist.ReduceOp.MAX) & 0xFFFFFFFF)


class Step:
    """A step for a number of rows, captured where there is a GPU."""

    def __init__(self, model, count):
        device = model.ranks.device
        on_gpu = device.type == "cuda"
        self.model, self.graph, self.rows = model, None, torch.arange(count, device=device)
        # Of each row the token and the position; then the next token.
        self.given = torch.zeros(2, count, dtype=torch.long, pin_memory=on_gpu)
        self.next = torch.zeros(count, dtype=torch.long, pin_memory=on_gpu)
        if on_gpu:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.enqueue()
            model.ranks.barrier()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                self.enqueue()

    def enqueue(self, places=None):
        tokens, positions = self.given.to(self.rows.device, non_blocking=True)
        best = self.model.step(tokens, positions, self.rows, places or self.model.context)
        self.next.copy_(best, non_blocking=True)

    def run(self, places=None):
        if self.graph:
            self.graph.replay()
            torch.cuda.current_stream().synchronize()
        else:
            self.enqueue(places)

    def milliseconds(self, steps):
        for _ in range(5):
            self.run()
        self.model.ranks.barrier()
        begun = time.perf_counter()
        for _ in range(steps):
            self.run()
        return (time.perf_counter() - begun) / steps * 1e3


def check(model):
    """Prints the tokens that follow one; any number of ranks has to print the same."""
    step, tokens = Step(model, 2), []
    step.given[0] = torch.tensor([7, 100])
    for position in range(16):
        step.given[1] = position
        step.run(position + 1)
        step.given[0] = step.next
        tokens.append(step.next.tolist())
    prompt = torch.tensor([100] + [pair[1] for pair in tokens])
    after = [model.prefill(prompt[:length]).item() for length in range(1, len(prompt))]
    if model.ranks.rank == 0:
        print(f"{model.ranks.count} ranks continue 7 and 100 with {tokens}", flush=True)
        print(f"after each beginning of the second, in one pass: {after}: {after == prompt[1:].tolist()}", flush=True)


def measure(model, count, steps, mode):
    ranks, shape, step = model.ranks, model.shape, Step(model, count)
    step.given[0] = torch.arange(count) * 31 % shape.vocabulary
    step.given[1] = model.context - 1
    whole = step.milliseconds(steps)
    line = (
        f"{count:4d} rows, context {model.context}, compile {mode}: {whole:8.3f} ms a step, {count / whole * 1e3:8.0f}"
        f" tokens/s, {shape.weight_bytes() / ranks.count / whole / 1e6:6.0f} GB/s of weights a rank"
    )
    if ranks.count > 1:
        ranks.is_on = False
        step = Step(model, count)
        step.given[1] = model.context - 1
        silent = step.milliseconds(steps)
        ranks.is_on = True
        line += f", communication {whole - silent:.3f} ms ({1 - silent / whole:.0%})"
    if ranks.rank == 0:
        print(line, flush=True)


def measure_prompt(model, count, steps, mode):
    """The median time of a pass, whose kernels the host enqueues meanwhile."""
    ranks = model.ranks
    tokens = (torch.arange(count) * 31 % model.shape.vocabulary).to(ranks.device)
    ways = {"all-reduces": model.prefill}
    if ranks.count > 1 and ranks.device.type == "cuda" and mode == "off":
        ways["fused products"] = model.fused_prefill
    for way, run in ways.items():
        times, token = [], None
        for i in range(steps + 5):
            ranks.barrier()
            begun = time.perf_counter()
            token = run(tokens).item()
            times.append((time.perf_counter() - begun) * 1e3)
        middle = sorted(times[5:])[steps // 2]
        if ranks.rank == 0:
            print(
                f"prefill of {count} tokens, {way}, compile {mode}: {middle:8.3f} ms,"
                f" {count / middle * 1e3:8.0f} tokens/s, next token {token}",
                flush=True,
            )


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,8,64,256")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--compile", default="off,default", help="also max-autotune, which takes minutes")
    parser.add_argument("--prefill", type=int, default=0, metavar="TOKENS", help="also a prompt")
    parser.add_argument("--one-shot", type=int, default=0, metavar="BYTES", help="NCCL sums what has more bytes")
    parser.add_argument("--gloo", action="store_true", help="a tiny shape on the CPU, without graphs")
    return parser.parse_args()


def main():
    options = parse()
    begun, ranks = time.perf_counter(), Ranks(options.gloo, options.one_shot)
    if options.prefill % ranks.count:
        raise SystemExit(f"--prefill {options.prefill}: give a multiple of the {ranks.count} ranks")
    counts = [int(rows) for rows in options.rows.split(",")]
    with torch.no_grad():
        shape, prompt = TINY if options.gloo else LLAMA_8B, max(options.prefill, 16)
        model = Model(shape, ranks, max(counts + [2]), options.context, prompt)
        ranks.barrier()
        if ranks.rank == 0:
            seconds = time.perf_counter() - begun
            print(f"PyTorch {torch.__version__}, {ranks.count} ranks, ready after {seconds:.1f} s", flush=True)
        if options.gloo:
            check(model)
        for mode in ["off"] if options.gloo else options.compile.split(","):
            try:
                model.compile(mode)
                for count in counts:
                    measure(model, count, options.steps, mode)
                if options.prefill:
                    measure_prompt(model, options.prefill, options.steps, mode)
            except Exception as e:  # of the compiler, on every rank: the other modes are measured still
                print(f"rank {ranks.rank}: --compile {mode} does not work here: {e!r}"[:2000], flush=True)
    if ranks.count > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
