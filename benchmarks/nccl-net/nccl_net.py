# SPDX-License-Identifier: Apache-2.0
"""Runs two ranks of PyTorch over a network of NCCL; check.sh says what for."""

import argparse
import contextlib
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

RANKS = 2
OWN = "fluxccl"
SOCKETS = "Socket"
SIZES = [4, 64, 1024, 16 << 10, 256 << 10, 4 << 20, 32 << 20, 256 << 20]
MEASURED = [1 << 10, 64 << 10, 1 << 20, 32 << 20, 256 << 20]
# After its peer has died, a rank must get an error within TO_HEAR seconds, and end within DEADLINE seconds.
TO_HEAR = 5
DEADLINE = 20


# ---- a rank ----


def join_job(arguments):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(arguments.rank)
    dist.init_process_group(
        "nccl",
        init_method=f"tcp://127.0.0.1:{arguments.port}",
        rank=arguments.rank,
        world_size=RANKS,
        device_id=torch.device("cuda", arguments.rank),
    )
    return torch, dist


def pattern(torch, elements, rank, seed):
    """Small whole numbers: their sums are exact in any order."""
    values = torch.arange(elements, device="cuda", dtype=torch.int64)
    return ((values * 7 + rank * 13 + seed) % 251).to(torch.float32)


def compare(torch, name, size, got, wanted):
    if not torch.equal(got, wanted):
        wrong = int((got != wanted).sum())
        raise SystemExit(f"{name} of {size} bytes: {wrong} of {wanted.numel()} elements are wrong")


def check_size(torch, dist, rank, size, seed):
    """The four collectives with inputs of a size; those that split it need an element a rank."""
    elements = size // 4
    split = max(elements, RANKS) // RANKS * RANKS
    part = split // RANKS

    x = pattern(torch, elements, rank, seed)
    dist.all_reduce(x)
    compare(torch, "all-reduce", size, x, sum(pattern(torch, elements, r, seed) for r in range(RANKS)))

    gathered = torch.empty(RANKS * elements, device="cuda")
    dist.all_gather_into_tensor(gathered, pattern(torch, elements, rank, seed))
    wanted = torch.cat([pattern(torch, elements, r, seed) for r in range(RANKS)])
    compare(torch, "all-gather", size, gathered, wanted)

    mine = torch.empty(part, device="cuda")
    dist.reduce_scatter_tensor(mine, pattern(torch, split, rank, seed))
    wanted = sum(pattern(torch, split, r, seed) for r in range(RANKS))[rank * part : (rank + 1) * part]
    compare(torch, "reduce-scatter", size, mine, wanted)

    exchanged = torch.empty(split, device="cuda")
    dist.all_to_all_single(exchanged, pattern(torch, split, rank, seed))
    wanted = torch.cat([pattern(torch, split, r, seed)[rank * part : (rank + 1) * part] for r in range(RANKS)])
    compare(torch, "all-to-all", size, exchanged, wanted)


def rank_correct(arguments):
    torch, dist = join_job(arguments)
    start = time.monotonic()
    rounds = 0
    going = torch.ones(1, device="cuda")
    while going.item() > 0:
        for size in SIZES:
            check_size(torch, dist, arguments.rank, size, rounds)
        rounds += 1
        # Ranks must agree on the last round.
        going.fill_(1 if time.monotonic() - start < arguments.minutes * 60 else 0)
        dist.all_reduce(going, op=dist.ReduceOp.MIN)
    if arguments.rank == 0:
        print(f"correct: {rounds} rounds of {4 * len(SIZES)} collectives", flush=True)
    dist.destroy_process_group()


def rank_measure(arguments):
    torch, dist = join_job(arguments)
    for size in MEASURED:
        x = torch.zeros(size // 4, device="cuda")
        repeats = 500 if size <= 64 << 10 else 100 if size <= 1 << 20 else 20
        # Long enough for caches, and for a JVM's compilers.
        for _ in range(10 * repeats if size <= 64 << 10 else repeats):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        micros = (time.perf_counter() - start) / repeats * 1e6
        if arguments.rank == 0:
            print(f"measured {size} {micros:.2f}", flush=True)
    dist.destroy_process_group()


def rank_die(arguments):
    torch, dist = join_job(arguments)
    x = torch.zeros(1 << 20, device="cuda")
    for i in range(1_000_000):
        if arguments.rank == 1 and i == 200:
            print("killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            work = dist.all_reduce(x, async_op=True)
            # Only the stream waits. This thread must not, because the kernel will for ever.
            work.wait()
            done = torch.cuda.Event()
            done.record()
            while not done.query():
                if work.is_completed() and not soon(done.query):
                    raise RuntimeError("NCCL has given up")
        except Exception as e:  # What PyTorch throws differs from version to version.
            time.sleep(1)  # Its watchdog says why.
            print(f"ended: {e}", flush=True)
            os._exit(3)


def soon(condition, seconds=1.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


# ---- processes that start ranks ----


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(network, library, log):
    chosen = dict(os.environ)
    chosen.update(
        NCCL_P2P_DISABLE="1",
        NCCL_SHM_DISABLE="1",
        NCCL_NVLS_ENABLE="0",
        NCCL_NET=network,
        NCCL_NET_PLUGIN=library if network == OWN else "none",
        NCCL_NET_PLUGIN_REF_COUNT="1",
        NCCL_DEBUG="INFO",
        NCCL_DEBUG_FILE=log,
    )
    chosen.pop("CUDA_LAUNCH_BLOCKING", None)
    return chosen


class Job:
    """Two ranks, what they print and what NCCL logs."""

    def __init__(self, folder, network, library, mode, minutes=0.0):
        self.name = f"{mode} over {network}"
        port = free_port()
        self.logs = [os.path.join(folder, f"{mode}-{network}-{r}.log") for r in range(RANKS)]
        self.outputs = [log.replace(".log", ".out") for log in self.logs]
        self.ranks = []
        for rank in range(RANKS):
            command = [sys.executable, os.path.abspath(__file__), "--mode", mode, "--rank", str(rank)]
            command += ["--port", str(port), "--minutes", str(minutes)]
            with open(self.outputs[rank], "w") as output:
                self.ranks.append(
                    subprocess.Popen(
                        command,
                        cwd=folder,
                        env=environment(network, library, self.logs[rank]),
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait(self, rank, seconds):
        try:
            return self.ranks[rank].wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name}: rank {rank} did not end in {seconds} s\n{self.tail()}") from None

    def succeed(self, seconds):
        end = time.monotonic() + seconds
        for rank in range(RANKS):
            status = self.wait(rank, max(1, end - time.monotonic()))
            if status != 0:
                raise Failed(f"{self.name}: rank {rank} ended with {status}\n{self.tail()}")

    def stop(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()

    def read(self, files):
        text = ""
        for file in files:
            if os.path.exists(file):
                with open(file, errors="replace") as lines:
                    text += lines.read()
        return text

    def output(self):
        return self.read(self.outputs)

    def log(self):
        return self.read(self.logs)

    def tail(self):
        """What NCCL says of errors is in its log, as warnings and as calls that return an error."""
        lines = self.output().splitlines()[-30:]
        for log in self.logs:
            found = self.read([log]).splitlines()
            errors = [line for line in found if re.search(r"WARN|-> \d", line)]
            lines += [f"-- {os.path.basename(log)}"] + errors[:20] + ["-- its end"] + found[-8:]
        return "\n".join(lines)

    def expect_network(self, network):
        for wanted in (rf"Using network {network}\b", rf"via NET/{network}/0"):
            if not re.search(wanted, self.log()):
                raise Failed(f"{self.name}: NCCL's log has no line with {wanted!r}\n{self.tail()}")


def check_correct(folder, arguments):
    job = Job(folder, OWN, arguments.library, "correct", arguments.minutes)
    try:
        job.succeed(arguments.minutes * 60 + 600)
        job.expect_network(OWN)
        print(job.output().strip().splitlines()[-1], flush=True)
    finally:
        job.stop()


def measure(folder, network, library):
    job = Job(folder, network, library, "measure")
    try:
        job.succeed(900)
        job.expect_network(network)
        found = re.findall(r"^measured (\d+) ([\d.]+)$", job.output(), re.MULTILINE)
        return {int(size): float(micros) for size, micros in found}
    finally:
        job.stop()


def compare_networks(folder, arguments):
    times = {OWN: [], SOCKETS: []}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        for network, found in times.items():
            found.append(measure(folder, network, arguments.library))
    print(f"{'all-reduce':>12} {'fluxccl us':>12} {'sockets us':>12} {'fluxccl GB/s':>13} {'sockets GB/s':>13} {'ratio':>7}")
    for size in MEASURED:
        own, other = (statistics.median(each[size] for each in times[n]) for n in (OWN, SOCKETS))
        # Of two ranks each sends and receives the size once.
        print(
            f"{size:>12} {own:>12.1f} {other:>12.1f} {size / own / 1e3:>13.2f} {size / other / 1e3:>13.2f} {other / own:>7.2f}"
        )
    print("# ratio: their time over ours; above 1 is faster. Medians of the rounds", flush=True)


def check_kill(folder, arguments):
    job = Job(folder, OWN, arguments.library, "die")
    try:
        if job.wait(1, 300) != -signal.SIGKILL:
            raise Failed(f"rank 1 was not killed\n{job.tail()}")
        start = time.monotonic()
        while not re.search(r"ncclRemoteError", job.output()):
            if time.monotonic() - start > TO_HEAR:
                raise Failed(f"rank 0 heard of no ncclRemoteError in {TO_HEAR} s\n{job.tail()}")
            time.sleep(0.01)
        heard = time.monotonic() - start
        if not re.search(r"the peer has ended", job.output() + job.log()):
            raise Failed(f"rank 0 was not told that the peer has ended\n{job.tail()}")
        if job.wait(0, DEADLINE) == 0:
            raise Failed(f"rank 0 ended well beside a dead rank\n{job.tail()}")
        ended = time.monotonic() - start
        print(f"kill -9 of one rank: the other had ncclRemoteError in {heard:.1f} s and ended in {ended:.1f} s", flush=True)
    finally:
        job.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logs", type=os.path.abspath)
    parser.add_argument("--mode", choices=["correct", "measure", "die"], help="for the ranks only")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int)
    arguments = parser.parse_args()
    if arguments.mode:
        {"correct": rank_correct, "measure": rank_measure, "die": rank_die}[arguments.mode](arguments)
        return
    import torch

    if torch.cuda.device_count() < RANKS:
        raise SystemExit(f"{RANKS} GPUs are needed; there are {torch.cuda.device_count()}")
    print(f"# PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, {torch.cuda.get_device_name(0)}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = arguments.logs
        if folder:
            os.makedirs(folder, exist_ok=True)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            check_correct(folder, arguments)
            compare_networks(folder, arguments)
            check_kill(folder, arguments)
        except Failed as e:
            raise SystemExit(f"failed: {e}") from None


if __name__ == "__main__":
    main()
