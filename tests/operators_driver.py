"""A loop of forty lines around nengo-dl's graph, to test the operators without the adapter."""

import warnings

import nengo
import numpy as np

from simrun_nengo_dl.compat import load_nengo_dl

nengo_dl = load_nengo_dl()

import tensorflow as tf  # noqa: E402
from tensorflow.compiler.tf2xla.python import xla as hlo  # noqa: E402

from nengo_dl import builder  # noqa: E402
from simrun_nengo_dl import operators  # noqa: E402


class Bare(nengo_dl.Simulator):
    """nengo-dl's simulator without a Keras model."""

    def _build_keras(self, progress=None):
        self.node_inputs, self._nsteps = self.tensor_graph.build_inputs()
        self.tensor_graph.build()
        self.keras_model = self.tensor_graph


class Run:
    """Runs a network in chunks; `native` installs our operators."""

    def __init__(self, net, *, xla=True, capacity=200, minibatch=None, native=True, seed=1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sim = Bare(net, progress_bar=False, seed=seed, minibatch_size=minibatch)
        self.graph = graph = sim.tensor_graph
        self.ahead = operators.install(graph, xla=xla) if native else []
        self.xla, self.capacity, self.done = xla, capacity, 0
        self.state_keys = list(graph.saved_state)
        kinds = graph.base_arrays_init["non_trainable"] | graph.base_arrays_init["trainable"]
        self.learned = [key for key in graph.base_params if kinds[key][-1]]
        self.state = [tf.convert_to_tensor(v) for v in graph.saved_state.values()]
        self.state += [tf.convert_to_tensor(graph.base_params[key]) for key in self.learned]
        self.initial = self.state
        self.nodes = [n for n in graph.invariant_inputs if n.size_out]
        self.function = tf.function(self._trace, autograph=False, jit_compile=xla or None)
        self.built = False

    def reset(self):
        """Back to the first step, with the same program."""
        self.state, self.done = self.initial, 0
        self.graph.build_post()

    def _trace(self, n_steps, state, inputs, ahead):
        graph, s = self.graph, self.graph.signals
        tf.random.set_seed(graph.seed)
        s.reset()
        s.dt, s.dt_val = tf.constant(graph.dt, graph.dtype), graph.dt
        s.zero, s.one = tf.constant(0, graph.dtype), tf.constant(1, graph.dtype)
        config = builder.BuildConfig(
            graph.inference_only, None, True, np.random.RandomState(graph.seed), False
        )
        s.simrun_ahead = dict(zip([a.key for a in self.ahead], ahead, strict=True))
        graph.op_builder.build_pre(s, config)
        probed = [s[graph.model.sig[p]["in"]] for p in graph.model.probes]

        def body(i, state, buffers):
            bases = dict(zip(self.state_keys + self.learned, state, strict=True))
            saved = {key: bases[key] for key in self.state_keys}
            params = {k: bases.get(k, v) for k, v in graph.base_params.items()}
            graph._fill_bases(saved, params)
            for node, values in zip(self.nodes, inputs, strict=True):
                if graph.model.sig[node]["out"] in s:
                    s.scatter(s[graph.model.sig[node]["out"]], values[i])
            s.simrun_step = i
            with tf.control_dependencies([i]):
                effects = graph.op_builder.build_step(s)
                rows = [s.gather(sig) for sig in probed]
            if self.xla:
                buffers = [
                    hlo.dynamic_update_slice(b, r[None], tf.stack([i] + [0] * len(r.shape)))
                    for b, r in zip(buffers, rows, strict=True)
                ]
            else:
                buffers = [b.write(i, r) for b, r in zip(buffers, rows, strict=True)]
            with tf.control_dependencies(effects + rows):
                i += 1
            keys = self.state_keys + self.learned
            return i, tuple(s.bases[key] for key in keys), tuple(buffers)

        shapes = [sig.full_shape for sig in probed]
        if self.xla:
            empty = tuple(tf.zeros((self.capacity, *shape), graph.dtype) for shape in shapes)
        else:
            empty = tuple(tf.TensorArray(graph.dtype, n_steps, element_shape=x) for x in shapes)
        _, state, buffers = tf.while_loop(
            lambda i, *_: i < n_steps,
            body,
            (tf.constant(0), tuple(state), empty),
            parallel_iterations=1,
        )
        return state, buffers if self.xla else tuple(b.stack() for b in buffers)

    def __call__(self, n):
        """Run n steps; return each probe's samples, (n, minibatch, size)."""
        graph = self.graph
        length = self.capacity
        dtype = graph.dtype

        def signature(size):
            return tf.TensorSpec((length, graph.minibatch_size, size), dtype)

        if not self.built:
            ahead = [signature(a.size) for a in self.ahead]
            inputs = [signature(n.size_out) for n in self.nodes]
            state = [tf.TensorSpec(x.shape, x.dtype) for x in self.state]
            self.program = self.function.get_concrete_function(
                tf.TensorSpec([], tf.int32), state, inputs, ahead
            )
            graph.build_post()
            self.built = True
        arrays = []
        length = length or n
        for node in self.nodes:
            values = np.zeros((length, graph.minibatch_size, node.size_out), dtype)
            source = graph.input_funcs[node]
            for i in range(n):
                time = (self.done + i + 1) * graph.dt
                values[i] = source if isinstance(source, np.ndarray) else [f(time) for f in source]
            arrays.append(tf.constant(values))
        for process in self.ahead:
            rows = np.zeros((length, graph.minibatch_size, process.size), dtype)
            rows[:n] = process.rows(self.done, n)
            arrays.append(tf.constant(rows))
        state, buffers = self.program(tf.constant(n), *self.state, *arrays)
        self.state, self.done = list(state), self.done + n
        return [b.numpy()[:n] for b in buffers]

    def chunks(self, lengths):
        """Run chunk after chunk; return each probe's samples joined."""
        parts = [self(n) for n in lengths]
        return [np.concatenate(p) for p in zip(*parts, strict=True)]


def settings(net, dtype="float64"):
    """Inference only, in the precision given; to be used where the network is made."""
    with net:
        nengo_dl.configure_settings(inference_only=True, dtype=dtype)


def core(net, n):
    """The same samples from nengo's core simulator, (n, 1, size) each."""
    with nengo.Simulator(net, progress_bar=False, optimize=False) as sim:
        sim.run_steps(n)
    return [np.asarray(sim.data[p])[:, None] for p in net.probes]


def dl(net, n, minibatch=None, seed=1):
    """The same samples from nengo-dl's own run_steps, (n, minibatch, size) each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with nengo_dl.Simulator(
            net, progress_bar=False, seed=seed, minibatch_size=minibatch
        ) as sim:
            sim.run_steps(n)
    data = [np.asarray(sim.data[p]) for p in net.probes]
    return [d[:, None] if minibatch is None else d.swapaxes(0, 1) for d in data]
