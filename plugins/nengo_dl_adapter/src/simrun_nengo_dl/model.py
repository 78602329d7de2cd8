"""From what the user's function returns to a network with all its probes, each with a name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import nengo

from simrun.errors import ConfigError, SimulationError
from simrun.units import parse_steps
from simrun_nengo_dl.compat import load_nengo_dl
from simrun_nengo_dl.settings import Probe

nengo_dl = load_nengo_dl()


@dataclass(frozen=True)
class NamedProbe:
    """A probe of the network that is to be recorded.

    Parameters
    ----------
    name : str
    probe : nengo.Probe
    label : str
        What is probed, in words.
    period : float
        In steps; see `simrun.records.ProbeSpec`.
    reduce : str
    """

    name: str
    probe: nengo.Probe
    label: str
    period: float
    reduce: str
    format: str = "dense"


def split_model(returned: Any, reference: str) -> tuple[nengo.Network, Any]:
    """The network, and the probes that the function returned beside it, or None.

    Raises
    ------
    ConfigError
        Something else was returned.
    """
    network, probes = returned, None
    if isinstance(returned, tuple) and len(returned) == 2:
        network, probes = returned
        if isinstance(probes, nengo.Probe):
            probes = [probes]
    if not isinstance(network, nengo.Network) or not _are_probes(probes):
        raise ConfigError(
            f"model: {reference} returned {_describe(returned)}",
            "return a nengo.Network, or (network, probes) with a list or a dict of nengo.Probe",
        )
    if probes is not None:
        known = set(network.all_probes)
        listed = probes.values() if isinstance(probes, Mapping) else probes
        for probe in listed:
            if probe not in known:
                raise ConfigError(
                    f"model: {reference} returned {probe}, which is in another network",
                    "create it in `with network:`",
                )
    return network, probes


def name_probes(
    network: nengo.Network, returned: Any, requests: Sequence[Probe], dt: float
) -> list[NamedProbe]:
    """The probes to record: the network's own, then one that is added for each request.

    Parameters
    ----------
    network : nengo.Network
        Probes are added to it.
    returned : mapping, sequence or None
        The probes that the model's function returned; None: all that the network has.
    requests : sequence of Probe
        The config's probes.
    dt : float
        Seconds of model time per step.

    Raises
    ------
    ConfigError
        An object, attribute or period that doesn't exist, a name used twice, or no probe.
    """
    objects: dict[str, Any] = {}
    doubtful = set()
    for name, thing in _objects(network):
        if objects.setdefault(name, thing) != thing:
            doubtful.add(name)
    named = [
        NamedProbe(name, probe, _label(probe, objects), _own_period(network, probe, dt), "last")
        for name, probe in _own(network, returned, objects)
    ]
    taken = {item.name: "a probe of the network" for item in named}
    for index, request in enumerate(requests):
        where = f"probes.{index}"
        if request.name in taken:
            raise ConfigError(
                f"{where}.name: {request.name!r} is also the name of {taken[request.name]}",
                "give it another name",
            )
        taken[request.name] = where
        if request.object in doubtful:
            raise ConfigError(
                f"{where}.object: several objects of the network are called {request.object!r}",
                "give each its own label",
            )
        named.append(_add(network, request, where, objects, dt))
    if not named:
        raise ConfigError(
            "the model has no probes, and the config declares none: nothing would be recorded",
            "add nengo.Probe(…) to the network, or `probes:` to the config",
        )
    return named


def object_labels(network: nengo.Network) -> dict[Any, str]:
    """The name by which the config would call each object of a network."""
    labels: dict[Any, str] = {}
    for label, thing in _objects(network):
        labels.setdefault(thing, label)
    return labels


def _are_probes(probes: Any) -> bool:
    if probes is None:
        return True
    if isinstance(probes, Mapping):
        return all(isinstance(k, str) and isinstance(v, nengo.Probe) for k, v in probes.items())
    return isinstance(probes, (list, tuple)) and all(isinstance(p, nengo.Probe) for p in probes)


def _describe(thing: Any) -> str:
    if isinstance(thing, tuple):
        return f"a tuple of {', '.join(type(item).__name__ for item in thing)}"
    return f"a {type(thing).__name__}"


def _objects(network: nengo.Network, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and objects: labels first, then attributes of the network; nested ones by dots."""
    things = [*network.ensembles, *network.nodes, *network.connections]
    named = [(thing.label, thing) for thing in things if thing.label]
    own = set(things)
    subnets = set(network.networks)
    attributes = [(k, v) for k, v in vars(network).items() if not k.startswith("_")]
    named += [(k, v) for k, v in attributes if _hashable(v) and v in own]
    for name, thing in named:
        yield prefix + name, thing
        if isinstance(thing, nengo.Ensemble):
            yield f"{prefix}{name}.neurons", thing.neurons
        elif isinstance(thing, nengo.Connection) and thing.learning_rule is not None:
            rules = thing.learning_rule
            if isinstance(rules, nengo.connection.LearningRule):
                yield f"{prefix}{name}.learning_rule", rules
            else:
                items = rules.items() if isinstance(rules, dict) else enumerate(rules)
                for key, rule in items:
                    yield f"{prefix}{name}.learning_rule.{key}", rule
    inner = [(net.label, net) for net in network.networks if net.label]
    inner += [(k, v) for k, v in attributes if _hashable(v) and v in subnets]
    for name, net in inner:
        yield from _objects(net, f"{prefix}{name}.")


def _hashable(value: Any) -> bool:
    return isinstance(value, (nengo.base.NengoObject, nengo.Network))


def _own(
    network: nengo.Network, returned: Any, objects: Mapping[str, Any]
) -> Iterator[tuple[str, nengo.Probe]]:
    if isinstance(returned, Mapping):
        wanted = [(name, probe) for name, probe in returned.items()]
    else:
        probes = network.all_probes if returned is None else returned
        attributes = {v: k for k, v in vars(network).items() if isinstance(v, nengo.Probe)}
        wanted = [
            (probe.label or attributes.get(probe) or _label(probe, objects), probe)
            for probe in probes
        ]
    count: dict[str, int] = {}
    for name, probe in wanted:
        name = re.sub(r"[^A-Za-z0-9_.\-]+", "_", name).lstrip(".-")[:180] or "probe"
        while name in count:
            count[name] += 1
            name = f"{name}_{count[name]}"
        count[name] = 0
        yield name, probe


def _label(probe: nengo.Probe, objects: Mapping[str, Any]) -> str:
    """What a probe looks at: the object's label, else its kind; and what of it."""
    target = probe.obj
    label = next((name for name, thing in objects.items() if thing == target), None)
    if label is None:
        label = type(target).__name__.lower()
    default = probe.obj.probeable[0]
    return label if probe.attr == default else f"{label}.{probe.attr}"


def _own_period(network: nengo.Network, probe: nengo.Probe, dt: float) -> float:
    if not nengo_dl.config.get_setting(network, "keep_history", True, obj=probe):
        return math.inf
    return 1.0 if probe.sample_every is None else max(1.0, float(probe.sample_every / dt))


def _add(
    network: nengo.Network, request: Probe, where: str, objects: Mapping[str, Any], dt: float
) -> NamedProbe:
    target = objects.get(request.object)
    if target is None:
        near = get_close_matches(request.object, objects, 3)
        names = near or [n for n in objects if not n.endswith(".neurons")][:10]
        hint = f"did you mean {' or '.join(near)}?" if near else f"labels here: {', '.join(names)}"
        if not objects:
            hint = "no object of the network has a label: nengo.Ensemble(…, label='exc')"
        raise ConfigError(f"{where}.object: the network has no {request.object!r}", hint)
    attribute = request.attribute
    if attribute == "spikes" and "output" in target.probeable:
        attribute = "output"
    if attribute is not None and attribute not in target.probeable:
        near = get_close_matches(attribute, target.probeable, 1)
        also = ""
        if isinstance(target, nengo.Ensemble) and attribute in target.neurons.probeable:
            also = f"; {attribute} is one of {request.object}.neurons"
        raise ConfigError(
            f"{where}.attribute: {request.object} has no {attribute!r}",
            (f"did you mean {near[0]}? " if near else "")
            + f"it has: {', '.join(target.probeable)}{also}",
        )
    try:
        period = parse_steps(request.sample_every, dt)
    except ValueError as error:
        raise ConfigError(f"{where}.sample_every: {error}") from None
    try:
        with network:
            probe = nengo.Probe(target, attribute, synapse=request.synapse, label=request.name)
    except Exception as error:
        raise SimulationError(f"{where}: nengo refuses this probe: {error}") from error
    return NamedProbe(request.name, probe, request.object, period, request.reduce, request.format)
