"""What may be chosen by name; without numbers, so that the command's help does not wait for them."""

import enum


class Preset(enum.StrEnum):
    """Which method decides."""

    MULTISCALE = "multiscale"
    """Tidegate's own: a paired test that must hold at every credible time scale."""
    PAPER = "paper"
    """SPIN as published: one basis, two bounds."""


class BasisKind(enum.StrEnum):
    """The shape that performance may take over time."""

    COSINE = "cosine"
    POLYNOMIAL = "polynomial"
    FOURIER = "fourier"
    CONSTANT = "constant"


class PolicyClass(enum.StrEnum):
    """Among which policies a candidate is searched."""

    AUTO = "auto"
    """Softmax or Gaussian without features, linear with features."""
    SOFTMAX = "softmax"
    LINEAR = "linear"
    MLP = "mlp"
    GAUSSIAN = "gaussian"
