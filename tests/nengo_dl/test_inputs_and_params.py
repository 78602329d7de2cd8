"""Input data from files, trained parameters, and settings that don't fit."""

import random

import nets_for_nengo_dl as nets
import numpy as np
import pytest
from open_nets import assert_same, one_piece, open_net, run

from simrun.errors import ConfigError, SimulationError

RNG = np.random.RandomState(0)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_input_files_are_fed_chunk_by_chunk(tmp_path, mode):
    first = RNG.uniform(-1, 1, (2, 40, 2)).astype(np.float32)
    second = RNG.uniform(-1, 1, (40, 1))
    np.save(tmp_path / "first.npy", first)
    np.savez(tmp_path / "more.npz", second=second)
    np.save(tmp_path / "short.npy", second[:10])
    settings = {"compile": mode, "minibatch_size": 2}
    simulation = open_net(
        _here(tmp_path), base=tmp_path,
        inputs={"first": "first.npy", "second": "more.npz:second"}, **settings,
    )  # fmt: skip
    found = run(simulation, [11, 20, 9])
    np.testing.assert_array_equal(found["first"], first.swapaxes(0, 1))
    if mode == "graph":
        net = nets.inputs()
        data = {"first": first, "second": np.repeat(second[None], 2, axis=0)}
        expected = one_piece(net, 40, minibatch_size=2, data=data)
        np.testing.assert_array_equal(found["decoded"], expected[0])
        simulation = open_net(_here(tmp_path), base=tmp_path,
                              inputs={"first": "first.npy", "second": "short.npy"},
                              **settings)  # fmt: skip
        short = tmp_path / "short.npy"
        assert simulation.available == (10, f"nengo_dl.inputs.second: {short}")
        assert simulation.sources == (tmp_path / "first.npy", short)


def _here(folder):
    (folder / "net.py").write_text("from nets_for_nengo_dl import inputs as build\n")
    return "net.py:build"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"frist": "x.npy"}, "did you mean first"),
        ({"first": "y.npy"}, "did you mean x.npy"),
        ({"first": "x.npy"}, "has shape (7, 3)"),
        ({"first": "junk.npy"}, "can't read"),
        ({"first": "z.npz"}, "z.npz:NAME"),
        ({"first": "z.npz:b"}, "no array 'b'"),
        ({"first": "text.npy"}, "numbers are needed"),
    ],
)
def test_wrong_inputs_are_explained(tmp_path, inputs, message):
    np.save(tmp_path / "x.npy", np.zeros((7, 3)))
    np.savez(tmp_path / "z.npz", a=np.zeros((7, 2)))
    np.save(tmp_path / "text.npy", np.array([["a", "b"]]))
    (tmp_path / "junk.npy").write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigError) as caught:
        open_net(_here(tmp_path), base=tmp_path, inputs=inputs, compile="graph")
    assert message in str(caught.value)
    assert "nengo_dl.inputs" in str(caught.value)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network that nengo-dl has trained a little and saved, and what it then records."""
    nengo_dl, tf = nets.nengo_dl, nets.tf
    folder = tmp_path_factory.mktemp("trained")
    with nengo_dl.Simulator(nets.inputs(), seed=1, minibatch_size=2, progress_bar=False) as sim:
        probes = sim.model.probes
        sim.compile(tf.optimizers.SGD(100.0), loss={probes[0]: "mse"})
        x = {"first": RNG.uniform(-1, 1, (8, 5, 2)), "second": RNG.uniform(-1, 1, (8, 5, 1))}
        sim.fit(x, {probes[0]: RNG.uniform(-1, 1, (8, 5, 2))}, epochs=2, verbose=0)
        sim.save_params(folder / "trained")
        sim.save_params(folder / "with_state", include_state=True)
        sim.run_steps(20)
        data = [sim.data[probe].swapaxes(0, 1) for probe in probes]
    (folder / "net.py").write_text(
        "from nets_for_nengo_dl import inputs as build\nfrom nets_for_nengo_dl import lif\n"
    )
    return folder, data


@pytest.mark.parametrize("name", ["trained.npz", "with_state.npz"])
def test_trained_parameters(trained, name):
    folder, expected = trained
    simulation = open_net("net.py:build", base=folder, load_params=name, minibatch_size=2,
                          compile="graph")  # fmt: skip
    for array, other in zip(run(simulation, [8, 12]).values(), expected, strict=True):
        np.testing.assert_array_equal(array, other)
    untrained = open_net("net.py:build", base=folder, minibatch_size=2, compile="graph")
    assert not np.array_equal(run(untrained, [20])["decoded"], expected[0])


@pytest.mark.parametrize(
    ("model", "file", "message"),
    [
        ("build", "absent.npz", "no file"),
        ("build", "net.py", "can't read"),
        ("lif", "trained.npz", "load_params"),
    ],
)
def test_parameters_that_do_not_fit(trained, model, file, message):
    with pytest.raises(ConfigError, match=message):
        open_net(f"net.py:{model}", base=trained[0], load_params=file, compile="graph")


def test_a_gpu_that_is_not_there():
    if nets.tf.config.list_physical_devices("GPU"):
        pytest.skip("there is one")
    with pytest.raises(ConfigError, match="sees 0 GPUs"):
        open_net("lif", device="gpu:0")


def test_xla_refuses_what_it_cannot_compile():
    with pytest.raises(ConfigError, match="Counter"):
        open_net("stateful_node", compile="xla")


def test_a_network_that_nengo_refuses(tmp_path):
    (tmp_path / "net.py").write_text(
        "import nengo\n"
        "def build():\n"
        "    with nengo.Network() as net:\n"
        "        ens = nengo.Ensemble(5, 1, max_rates=[1e9] * 5)\n"
        "        nengo.Probe(ens)\n"
        "    return net\n"
    )
    with pytest.raises(SimulationError, match="can't build"):
        open_net("net.py:build", base=tmp_path)


def test_without_a_seed_two_processes_build_the_same_network():
    one, two = (open_net("unseeded", seed=None, compile="graph") for _ in range(2))
    assert_same(run(one, [5]), run(two, [5]))


def test_keras_and_tensorflow_settings():
    simulation = open_net("lif", compile="graph")
    facts = simulation.provenance()
    assert facts["tensorflow"] == nets.tf.__version__
    assert facts["inference_only"] is True
    assert simulation.device == "CPU"
    assert simulation.device_peak() is None
    assert not simulation.can_fall_back()


def test_a_network_that_fails_leaves_nengo_as_it_was(tmp_path):
    """nengo-dl sets nengo's global precision while it builds, and not back when it fails."""
    import nengo

    from simrun.errors import SimulationError

    (tmp_path / "bad.py").write_text(
        "import nengo\n\n\ndef build():\n"
        "    with nengo.Network() as network:\n"
        "        a = nengo.Ensemble(5, 1)\n"
        "        nengo.Connection(a, a, function=lambda x: 1 / 0)\n"
        "        nengo.Probe(a)\n"
        "    return network\n"
    )
    before = nengo.rc.get("precision", "bits")
    with pytest.raises(SimulationError):
        open_net("bad.py:build", base=tmp_path)
    assert nengo.rc.get("precision", "bits") == before


def test_nodes_that_share_a_generator_draw_in_the_order_of_steps(tmp_path):
    (tmp_path / "shared.py").write_text(
        "import nengo\nimport numpy as np\n\n\ndef build():\n"
        "    rng = np.random.RandomState(1)\n"
        "    with nengo.Network(seed=1) as network:\n"
        "        a = nengo.Node(lambda t: rng.normal(), label='a')\n"
        "        b = nengo.Node(lambda t: rng.normal(), label='b')\n"
        "        nengo.Probe(a, label='pa')\n"
        "        nengo.Probe(b, label='pb')\n"
        "    return network\n"
    )
    whole = run(open_net("shared.py:build", base=tmp_path), [40])
    assert_same(run(open_net("shared.py:build", base=tmp_path), [7, 7, 7, 7, 7, 5]), whole)


SHARING = """
import random
import nengo
import numpy as np


class World:
    x = 0.0
    gain = 1.0

    def act(self, t, u):
        self.x += float(u[0])

    def watch(self, t, u):
        return float(u[0]) * self.gain

    def observe(self, t):
        return [self.x]


class Noise(nengo.Process):
    def __init__(self, world):
        super().__init__(default_size_in=0, default_size_out=1)
        self.world = world

    def make_step(self, shape_in, shape_out, dt, rng, state):
        world = self.world

        def step(t):
            return np.array([world.x])

        return step


def build(late, early):
    world = World()
    functions = {
        "act": world.act, "watch": world.watch, "observe": world.observe,
        "clock": lambda t: t, "echo": lambda t, u: u, "noise": Noise(world),
        "draw": lambda t: np.random.rand(), "draw late": lambda t, u: np.random.rand(),
        "flip": lambda t: random.random(), "flip late": lambda t, u: random.random(),
        "stepwise": lambda t, u: world.observe(t),
    }
    with nengo.Network(seed=1) as network:
        one = nengo.Node([1.0], label="one")
        size_out = 0 if late == "act" else 1
        act = nengo.Node(functions[late], size_in=1, size_out=size_out, label="late")
        seen = nengo.Node(
            functions[early], size_in=int(early == "stepwise"), size_out=1, label="early"
        )
        nengo.Connection(one, act, synapse=None)
        nengo.Probe(seen, label="p")
    return network
"""


@pytest.mark.parametrize(
    ("late", "early", "what"),
    [
        ("act", "observe", "a dict or attributes"),
        ("act", "noise", "a dict or attributes"),
        ("draw late", "draw", "the generator of numpy.random"),
        ("flip late", "flip", "the generator of random"),
    ],
)
def test_an_input_node_that_depends_on_the_network_is_refused(tmp_path, late, early, what):
    """Its values are computed ahead for each chunk: samples would depend on the chunks."""
    (tmp_path / "env.py").write_text(SHARING)
    simulation = open_net("env.py:build", base=tmp_path, args={"late": late, "early": early})
    with pytest.raises(SimulationError) as caught:
        run(simulation, [10])
    assert what in caught.value.message
    assert "samples would depend on the chunk length" in caught.value.message
    assert "size_in=1" in caught.value.hint
    assert simulation.step == 0


@pytest.mark.parametrize(
    ("late", "early"),
    [("watch", "observe"), ("act", "clock"), ("act", "stepwise"), ("echo", "draw"),
     ("draw late", "clock"), ("draw late", "flip")],
)  # fmt: skip
def test_what_is_only_read_may_be_shared(tmp_path, late, early):
    (tmp_path / "env.py").write_text(SHARING)

    def samples(chunks):
        np.random.seed(1)
        random.seed(1)
        arguments = {"late": late, "early": early}
        return run(open_net("env.py:build", base=tmp_path, args=arguments), chunks)

    assert_same(samples([4, 7, 9]), samples([20]))


def test_the_plan_names_functions_that_share(tmp_path):
    (tmp_path / "env.py").write_text(SHARING)
    arguments = {"late": "act", "early": "observe"}
    notes = open_net("env.py:build", base=tmp_path, args=arguments).notes
    assert any(
        note.startswith("node early and function World.act reach the same objects")
        for note in notes
    )
