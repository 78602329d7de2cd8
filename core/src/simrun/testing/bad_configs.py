"""Configs that every adapter refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simrun.errors import ConfigError, SimulationError

NOWHERE = "there_is_no_such_thing"


def always_bad(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """``{what: (changes of the config, class of the error, words in it)}``.

    Parameters
    ----------
    config : mapping
        A good one.
    folder : pathlib.Path
        Where bad model files may be written.
    """
    place = str(config["model"]).rpartition(":")[0]
    raising = folder / "raising_model.py"
    raising.write_text("def build():\n    raise ValueError('of the model')\n")
    nothing = folder / "model_of_nothing.py"
    nothing.write_text("def build():\n    pass\n")
    probes = list(config.get("probes", ()))
    key = f"probes.{len(probes)}"
    other = config["plugin"]
    return {
        "an unknown key in its section": (
            {other: {NOWHERE: 1}}, ConfigError, ["unknown key", "allowed"],
        ),
        "no such model file": ({"model": f"{NOWHERE}.py:build"}, ConfigError, ["no file"]),
        "no such function": ({"model": f"{place}:{NOWHERE}"}, ConfigError, [NOWHERE]),
        "an unknown argument": (
            {"model_args": {NOWHERE: 1}}, ConfigError, ["model_args", NOWHERE],
        ),
        "a model that raises": (
            {"model": f"{raising}:build", "model_args": {}}, SimulationError,
            ["ValueError", "of the model", "line 2"],
        ),
        "a model that is nothing": (
            {"model": f"{nothing}:build", "model_args": {}}, SimulationError, ["None"],
        ),
        "a probe of nothing": (
            {"probes": [*probes, {"name": "nothing", "object": NOWHERE}]},
            ConfigError, [key, NOWHERE],
        ),
    }  # fmt: skip
