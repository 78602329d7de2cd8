"""What a network of crossbars takes: formulas over shapes. No numbers are computed.

Beside the samples and activations: conductances and ideal weights (there from the start), W or
what it amounts to for each layer, and, while a layer is solved, its W and a group of tiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simrun_torch_crossbar.linear_map import PRECISION, CrossbarLayer
from simrun_torch_crossbar.solving import default_limit, group_bytes, group_size


@dataclass(frozen=True)
class LayerBytes:
    """What one layer takes, in bytes, and how it is solved.

    Parameters
    ----------
    name : str
    tiles : int
        Of all crossbars.
    tile : tuple of int
        Rows and columns of the largest.
    together : int
        Tiles of that shape that are solved at once.
    kept : int
        W, or the weights that it amounts to.
    solving : int
        Most that is there while the layer is solved: W, and either a group of tiles or the
        weights being made of W.
    """

    name: str
    tiles: int
    tile: tuple[int, int]
    together: int
    kept: int
    solving: int


def layer_bytes(layer: CrossbarLayer, limit: int | None = None) -> LayerBytes:
    """Add up what a layer takes; ``limit``: bytes that a group of tiles may take."""
    G, weight, config = layer.conductances, layer.ideal_weight, layer.config
    kind = G.device.type
    limit = default_limit(kind) if limit is None else limit
    facts = (G.dtype, PRECISION[config.precision], config.ohms, kind)
    matrices = G.shape[0] * G.shape[1]
    shapes = [(shape, matrices * len(places)) for shape, places in layer.grid.by_shape()]
    groups = [(shape, group_size(count, limit, shape, *facts)) for shape, count in shapes]
    group = max(group_bytes(count, shape, *facts) for shape, count in groups)
    by_tiles, at_once = config.tilewise or layer.watch is not None, not config.tilewise
    kept = G.nbytes * by_tiles + weight.nbytes * at_once
    # the weights are combined, then laid out as the layer's
    solving = G.nbytes + max(group if any(config.ohms) else 0, 2 * weight.nbytes * at_once)
    largest, together = max(groups, key=lambda item: item[0][0] * item[0][1])
    return LayerBytes(
        layer.name, matrices * len(layer.grid.rows) * len(layer.grid.columns),
        largest, together, kept, solving,
    )  # fmt: skip


def solving_peak(layers: Iterable[LayerBytes]) -> tuple[int, int]:
    """Bytes of all W in the end, and the most that solving layer by layer takes, W included."""
    held = peak = 0
    for layer in layers:
        peak = max(peak, held + layer.solving)
        held += layer.kept
    return held, max(peak, held)


def memtorch_bytes(layers: Iterable[CrossbarLayer], inputs: int) -> tuple[int, int]:
    """What MemTorch's passive kernels would ask for at once, in bytes, for the worst layer.

    Its first CUDA kernel (``tile_matmul_kernels.cu``) builds, for every input and tile, the nodal
    matrix as triplets and as compressed columns (int32 and float64 each), and a right side. One
    that builds a matrix a tile and a right side for every input needs what the second figure
    says. Both take the layer's tiles, padded, at once.

    Parameters
    ----------
    layers : iterable of CrossbarLayer
    inputs : int
        Rows that a layer is given at once.
    """
    old = new = 0
    for layer in layers:
        m, n = layer.config.tile
        tiles = layer.groups * len(layer.grid.rows) * len(layer.grid.columns)
        entries, nodes = 8 * m * n - 2 * m - 2 * n, 2 * m * n
        matrix, side = 28 * entries + 4 * nodes, 8 * nodes
        old = max(old, inputs * tiles * (matrix + side))
        new = max(new, tiles * (matrix + inputs * side))
    return old, new
