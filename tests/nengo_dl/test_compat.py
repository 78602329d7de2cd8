"""nengo_dl imports on the TensorFlow that is there, and leaves no trace of how."""

import os
import subprocess
import sys
import textwrap

import pytest

from simrun_nengo_dl import compat


def python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=os.environ | environment, text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_import():
    out = python("""
        import subprocess, sys, warnings
        warnings.simplefilter("error", UserWarning)
        call = subprocess.call
        started = []
        real = subprocess.Popen.__init__
        def popen(self, args, *rest, **kwargs):
            started.append(str(args))
            return real(self, args, *rest, **kwargs)
        subprocess.Popen.__init__ = popen
        before = {k: v for k, v in sys.modules.items() if k.split(".")[0] == "keras"}
        from simrun_nengo_dl.compat import load_nengo_dl
        nengo_dl = load_nengo_dl()
        assert load_nengo_dl() is nengo_dl
        after = {k: v for k, v in sys.modules.items() if k.split(".")[0] == "keras"}
        assert before == after, set(after) ^ set(before)
        assert subprocess.call is call
        assert not any("list_physical_devices" in s for s in started), started
        import keras
        print(keras.__version__)
    """)
    assert out.strip()


def test_the_plugin_imports_nothing_heavy():
    python("""
        import sys
        from simrun_nengo_dl import plugin, settings
        (entry,) = plugin.simrun_adapters()
        assert entry.name == "nengo_dl"
        heavy = {"tensorflow", "nengo", "nengo_dl", "keras", "tf_keras", "h5py"} & set(sys.modules)
        assert not heavy, heavy
    """)


def test_keras_3_that_is_loaded_already_is_explained():
    out = python("""
        import tensorflow as tf
        if not tf.keras.layers.Layer.__module__.startswith("keras.src"):
            print("Keras 2 anyway")
            raise SystemExit
        from simrun_nengo_dl.compat import load_nengo_dl
        try:
            load_nengo_dl()
        except Exception as error:
            print(type(error).__name__, error)
    """, TF_USE_LEGACY_KERAS="0")  # fmt: skip
    assert "Keras 2 anyway" in out or ("PluginError" in out and "Keras 3" in out)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_a_synapse_with_a_passthrough(mode):
    """nengo 4 gives D as a matrix, which nengo-dl 3.6 doesn't expect."""
    import nengo
    import nets_for_nengo_dl as nets
    import numpy as np
    from open_nets import open_net, run

    net = nets.synapses()
    with nengo.Simulator(net, seed=1, progress_bar=False) as reference:
        reference.run_steps(50)
    found = run(open_net("synapses", compile=mode, dtype="float64"), [50])
    for probe, array in zip(net.probes, found.values(), strict=True):
        # float64 in another order
        np.testing.assert_allclose(array, reference.data[probe], rtol=1e-12, atol=1e-14)


def test_a_traced_function_can_be_called_without_tensorflows_private_names():
    """Another release of TensorFlow may not have them."""
    compat.load_nengo_dl()
    import tensorflow as tf

    from simrun_nengo_dl.calling import flat_call

    factor = tf.Variable(3.0)
    scalar, vector = tf.TensorSpec(()), tf.TensorSpec((2,))
    function = tf.function(lambda a, b: (a * factor, (b + a,))).get_concrete_function(
        scalar, vector
    )

    class Public:
        structured_input_signature = function.structured_input_signature

        def __call__(self, *arguments):
            return function(*arguments)

    arguments = [tf.constant(2.0), tf.constant([1.0, 5.0])]
    for each in (function, Public()):
        assert [x.numpy().tolist() for x in flat_call(each)(arguments)] == [6.0, [3.0, 7.0]]


OWN = compat._TUNING.replace("false", "true")


@pytest.mark.parametrize(
    ("release", "before", "after"),
    [
        ("2.21.0", "", compat._TUNING),
        ("2.21.0", "--xla_dump_to=x", f"--xla_dump_to=x {compat._TUNING}"),
        ("2.21.0", OWN, OWN),
        ("2.99.0", "--xla_dump_to=x", "--xla_dump_to=x"),
    ],
)
def test_xlas_flags_are_set_for_known_releases_and_the_users_are_kept(
    monkeypatch, release, before, after
):
    monkeypatch.setattr(compat, "version", lambda name: release)
    monkeypatch.setenv("XLA_FLAGS", before)
    compat._tune_xla()
    assert os.environ["XLA_FLAGS"] == after
