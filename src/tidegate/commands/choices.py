"""Named choices. Imports no numerical library, so that the command's help is fast."""

import enum


class Preset(enum.StrEnum):
    """Which method decides."""

    MULTISCALE = "multiscale"
    """Tidegate's own: a paired test over many trend models, weighted by how well they forecast the past."""
    PAPER = "paper"
    """SPIN as published: one basis, two bounds."""


class BasisKind(enum.StrEnum):
    """The shape that performance may take over time."""

    COSINE = "cosine"
    POLYNOMIAL = "polynomial"
    FOURIER = "fourier"
    CONSTANT = "constant"


class PolicyClass(enum.StrEnum):
    """The class of policies in which a candidate is searched for."""

    AUTO = "auto"
    """Softmax or Gaussian without features, linear with features."""
    SOFTMAX = "softmax"
    LINEAR = "linear"
    MLP = "mlp"
    GAUSSIAN = "gaussian"
