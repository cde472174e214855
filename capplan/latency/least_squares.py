"""Least squares of the relative error, with coefficients that cannot be negative."""

import numpy as np

_ROUNDS = 6


def scaled_nnls(design: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return coefficients >= 0 of the least squares, solved with columns of norm 1."""
    from scipy.optimize import nnls

    scale = np.linalg.norm(design, axis=0)
    scale[scale == 0] = 1.0
    scaled, _ = nnls(design / scale, target, maxiter=50 * design.shape[1])
    return scaled / scale


def relative_nnls(
    design: np.ndarray,
    seconds: np.ndarray,
    ties: np.ndarray | None = None,
    importance: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Return coefficients >= 0 that minimise the squared relative error.

    Each row is weighted by 1/prediction, iterated: weights of 1/observation
    would favour the points that happened to be measured fast. ``design`` has shape
    (points, coefficients), ``ties`` rows with target 0 in units of relative error,
    ``importance`` is a factor on the relative error of each point.

    Examples
    --------
    >>> tokens = np.array([100.0, 200.0, 400.0])
    >>> design = np.column_stack([np.ones(3), tokens])
    >>> relative_nnls(design, 0.5 + 0.001 * tokens).round(6).tolist()
    [0.5, 0.001]
    """
    rows = np.zeros((0, design.shape[1])) if ties is None else ties
    weight = importance / seconds
    for _ in range(_ROUNDS):
        weighted = np.vstack([design * weight[:, None], rows])
        target = np.append(seconds * weight, np.zeros(len(rows)))
        coefficients = scaled_nnls(weighted, target)
        predicted = design @ coefficients
        weight = importance / np.maximum(predicted, 1e-3 * seconds)
    return coefficients
