"""The Lorenz attractor in spiking neurons."""

import nengo


def build(neurons=2000, tau=0.1, sigma=10.0, beta=8.0 / 3, rho=28.0):
    """Lorenz's equations (1963) in one recurrent population (Eliasmith & Anderson, 2003).

    The third variable is shifted by ``rho`` so that the attractor is centred on zero. ``tau``
    is the synapse's time constant in seconds.
    """

    def feedback(x):
        dx0 = -sigma * x[0] + sigma * x[1]
        dx1 = -x[0] * x[2] - x[1]
        dx2 = x[0] * x[1] - beta * (x[2] + rho) - rho
        return [dx0 * tau + x[0], dx1 * tau + x[1], dx2 * tau + x[2]]

    with nengo.Network(seed=0) as network:
        state = nengo.Ensemble(neurons, dimensions=3, radius=60, label="state")
        nengo.Connection(state, state, function=feedback, synapse=tau)
        nengo.Probe(state, synapse=tau, label="trajectory")
    return network
