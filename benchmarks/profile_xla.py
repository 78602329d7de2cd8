"""Where a compiled chunk's time goes: cores, vector instructions, and the least that it could take.

    python benchmarks/profile_xla.py

prints the tables of docs/profile.md. Each figure comes from a process of its own: the number of
cores is set by its affinity, and XLA's flags before TensorFlow is imported.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# steps of a chunk, and bytes that a step must read or write whatever the program:
# for each neuron encoder, bias, voltage and refractory time twice, output, decoder and output again
# (36); for `large` the synapse's state twice instead of encoder and decoder, and for each synapse
# its weight, its index, and the value that it gathers (12)
CASES = {
    "small": (1000, 100 * 36 + 50 * 4),
    "medium": (1000, 10_000 * 36 + 5000 * 4),
    "large": (100, 100_000 * 40 + 1_000_000 * 12 + 1000 * 4),
}
ROUNDS = 9
FREE = {"parameter", "tuple", "get-tuple-element", "constant", "bitcast"}
WAYS = {
    "ymm (256 bits)": r"%ymm",
    "zmm (512 bits)": r"%zmm",
    "xmm, packed": r"\tv?\w+p[sd]\b.*%xmm",
    "xmm, one number": r"\tv?\w+s[sd]\b.*%xmm",
}


def child(name, cores):
    """Seconds of a step of a chunk, of its inputs alone, and processor time by wall-clock time."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    from simrun.adapter import OpenRequest
    from simrun.records import Chunk
    from simrun_nengo_dl.opening import open_simulation
    from simrun_nengo_dl.settings import Settings

    steps, _ = CASES[name]
    request = OpenRequest(f"networks.py:{name}", {}, HERE, 1, (), Settings(compile="xla"))
    simulation = open_simulation(request)
    simulation.estimate_memory(steps)
    walls, inputs, busy = [], [], []
    for turn in range(ROUNDS + 2):
        chunk = Chunk(simulation.step, simulation.step + steps, 10**9, steps)
        feeding = time.perf_counter()
        simulation._feed.tensors(chunk.start, steps, steps, lambda: None, copied=False)
        feeding = time.perf_counter() - feeding
        wall, processor = time.perf_counter(), time.process_time()
        simulation.execute(chunk)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        if turn > 1:
            walls.append(wall / steps)
            inputs.append(feeding / steps)
            busy.append(processor / wall)
    print(json.dumps([*map(statistics.median, (walls, inputs, busy))]))


def measured(name, cores, **environment):
    command = [sys.executable, __file__, name, str(cores)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def compiled(name):
    """What a network's program is made of.

    Arithmetic instructions in its machine code, by their width; kernels that a step calls.
    """
    found, kernels = Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        measured(name, 1, XLA_FLAGS=f"--xla_dump_to={folder} --xla_dump_hlo_as_text")
        for path in Path(folder).rglob("*.o"):
            code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True).stdout
            for way, pattern in WAYS.items():
                found[way] += len(re.findall(pattern, code))
        for path in Path(folder).rglob("*cpu_after_optimizations.txt"):
            kernels = max(kernels, calls_of_a_step(path.read_text()))
    return found, kernels


def calls_of_a_step(program):
    """Operations in the largest loop body of XLA's text that aren't bookkeeping."""
    bodies = set(re.findall(r"body=%?([\w.\-]+)", program))
    most = 0
    for block in program.split("\n\n"):
        name = re.match(r"%?([\w.\-]+) \(", block.strip())
        if name and name[1] in bodies:
            found = re.findall(r"= (?:\([^=]*?\)|\S+) ([a-z\-]+)\(", block)
            most = max(most, sum(each not in FREE for each in found))
    return most


def bandwidth(nbytes):
    """Bytes per second that one core reads and writes in a working set of that size."""
    a = np.ones(max(nbytes // 8, 1), np.float32)
    b = np.empty_like(a)
    repeat = max(int(2e8 / a.nbytes), 3)
    best = 0.0
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(repeat):
            np.copyto(b, a)
        best = max(best, 2 * a.nbytes * repeat / (time.perf_counter() - begin))
    return best


def main():
    print(
        "| network | 2 cores, a step | cores busy | 1 core, a step | inputs of it "
        "| memory alone, a step |"
    )
    print("|---|---|---|---|---|---|")
    for name, (_, nbytes) in CASES.items():
        two, _, busy = measured(name, 2)
        one, inputs, _ = measured(name, 1)
        least = nbytes / bandwidth(nbytes)
        times = [f"{1e6 * each:,.1f} µs" for each in (two, one, inputs, least)]
        print(f"| {name} | {times[0]} | {busy:.2f} | {' | '.join(times[1:])} |")
    print()
    print(f"| network | kernels a step | {' | '.join(WAYS)} |")
    print("|---|---|" + "---|" * len(WAYS))
    for name in CASES:
        found, kernels = compiled(name)
        print(f"| {name} | {kernels} | {' | '.join(str(found[way]) for way in WAYS)} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], int(sys.argv[2]))
    else:
        main()
